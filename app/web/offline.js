// The script of the offline file, in place of mount.js: the same view, fed from data blocks.

import { Pack } from "./offline/packs.js";
import { PackSource } from "./offline/source.js";
import { banner } from "./parts.js";
import { listenForPresent } from "./present.js";
import { Studio } from "./studio.js";
import { followSystem } from "./theme.js";

function textOf(id) {
  return document.getElementById(id).textContent;
}

async function openFile() {
  const root = document.getElementById("ds-offline");
  followSystem();
  listenForPresent(document.getElementById("ds-present"));
  try {
    const { runs, opens, apart, cautions } = JSON.parse(textOf("ds-page")),
      tickets = Array.from({ length: runs }, (_, at) => String(at)),
      packs = new Map(tickets.map((ticket) => [ticket, new Pack(textOf(`ds-run-${ticket}`))]));
    await Promise.all([...packs.values()].map((pack) => pack.about()));
    const source = new PackSource(
      async (ticket) => packs.get(ticket) ?? null,
      (ticket) => apart[Number(ticket)],
      Object.entries(cautions),
    );
    const studio = new Studio(root, source, () => {});
    studio.open(...tickets);
    studio.link.listen();
    await studio.link.address.ready;
    if (opens && !studio.link.place) studio.link.seek({ round: opens + 1 });
  } catch (error) {
    root.replaceChildren(banner(error.message));
  }
}

openFile();
