// The script of a report: it draws the figures of its data block as the studio does. Plotly's is
// in the page.

import { Figure } from "./figure.js";
import { followSystem } from "./theme.js";

function openReport() {
  followSystem();
  const box = document.querySelector(".ds-figures");
  for (const each of JSON.parse(document.getElementById("ds-report").textContent)) {
    const figure = new Figure(null, { lazy: false }); // all of them, for paper too
    box.append(figure.element);
    figure.draw(each);
  }
}

openReport();
