// CSV (RFC 4180) as `elasti savings -o csv` writes it, with fields that no spreadsheet takes for a formula.

/** A text as one field. */
export function field(value) {
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[,"\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Lines of fields; numbers as they are. */
export const csv = (lines) => lines.map((line) => `${line.map((one) => (typeof one === 'number' ? String(one) : field(one ?? ''))).join(',')}\r\n`).join('');

/** Saves a text as a file of the viewer. */
export function download(name, text) {
  const link = document.createElement('a');
  const address = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
  link.href = address;
  link.download = name;
  link.click();
  // The browser has taken it over by then.
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
