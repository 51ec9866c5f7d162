// The Learn tab: fetch the course once, then it needs no server.

server.course({}).then(
  (course) => (course.error ? element.replaceChildren(h("p", { class: "ds-banner", role: "alert" }, course.error)) : new Learn(element, course)),
  () => element.replaceChildren(h("p", { class: "ds-banner", role: "alert" }, "the server does not answer")),
);
