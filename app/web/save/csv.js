// Numbers as CSV.

/** Records as a text, a line each. */
export function csvOf(records) {
  // A text that a spreadsheet would take for a formula is made plain text.
  const plain = (text) =>
    /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const names = [...new Set(records.flatMap((record) => Object.keys(record)))];
  const lines = [
    names,
    ...records.map((record) => names.map((each) => String(record[each] ?? ""))),
  ];
  return lines.map((line) => `${line.map((each) => cell(plain(each))).join(",")}\r\n`).join("");
}
