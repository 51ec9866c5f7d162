// What Gradio runs for the what-if view; its value names a file that somebody opened.

const whatif = new WhatIf(element, server);
watch('value', () => {
  const value = props.value || {};
  if (value.error) whatif.complain(value.error);
  else if (value.file) whatif.open(value.file, "the opened file");
  else if (value.cost) whatif.measured(value);
});
