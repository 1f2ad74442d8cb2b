// A string that no document has by chance. It marks the digits of a bigint within JSON.
const mark = `\uE000${Math.random().toString(36).slice(2)}:`;
const marked = new RegExp(`"${mark}(-?\\d+)"`, "g");
const token = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/**
 * Reads JSON as `JSON.parse` does, but for integers beyond 2^53, which become a bigint
 * rather than lose digits. It is meant for the option `parse` of Lapse.
 */
export function parseBigInt(text: string): unknown {
  if (!/\d{16}/.test(text)) {
    return JSON.parse(text);
  }
  const exact = text.replace(token, (t) => (/^-?\d{16,}$/.test(t) && !Number.isSafeInteger(Number(t)) ? `"${mark}${t}"` : t));
  return JSON.parse(exact, (_, value) => (typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value));
}

/** Writes JSON as `JSON.stringify` does, and a bigint as its digits. */
export function stringify(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    const text = JSON.stringify(value, (_, v) => (typeof v === "bigint" ? mark + v : v)) as string | undefined;
    return text?.replace(marked, "$1");
  }
}
