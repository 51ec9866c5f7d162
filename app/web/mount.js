// What Gradio runs when the component is there: `element`, `props`, `server`, `trigger`, `watch`
// are given. The two events below are listened to from Python.

/** The studio of one tab; `view` is the tab's name, `places` how many runs it shows. */
function mountStudio(view, places, stop) {
  const events = { running: () => trigger('running'), settled: () => trigger('settled') };
  const studio = new Studio(element, server, (name) => events[name](), { view, places, stop });
  studio.link.listen().then((opened) => opened || studio.restore());
  watch('value', () => {
    const value = props.value || {};
    if (value.error) studio.complain(value.error);
    else if (value.tickets) studio.open(...value.tickets);
    else if (value.added) value.added.forEach((ticket) => studio.beside(ticket));
  });
  return studio;
}
