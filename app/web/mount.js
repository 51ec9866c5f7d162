// What Gradio runs when the component is there: `element`, `props`, `server`, `trigger`, `watch`
// are given. The two events below are listened to from Python.

const source = { news: server.news, inspect: server.inspect, save: server.save, draw: server.draw, compare: server.compare, halt: server.halt,
  take: server.take, share: server.share, example: server.example };
const events = { running: () => trigger('running'), settled: () => trigger('settled') };
const studio = new Studio(element, source, (name) => events[name]());
studio.link.listen().then((opened) => opened || studio.restore());
watch('value', () => {
  const value = props.value || {};
  if (value.error) studio.complain(value.error);
  else if (value.ticket) studio.open(value.ticket, value.other);
  else if (value.other) studio.beside(value.other);
});
