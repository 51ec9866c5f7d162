// What Gradio runs for the calibration view; its value is a result file that somebody opened.

const calibration = new Calibration(element, server);
watch('value', () => {
  const value = props.value || {};
  if (value.curves || value.error) calibration.result(value);
});
