/**
 * A length of time: a number of seconds, a string such as `"30m"`, `"1h30m"` or `"7d"`, or
 * a `Temporal.Duration` without months and years.
 */
export type Duration = string | number | { total(unit: "seconds"): number };

const units: Record<string, number> = { ms: 1e-3, s: 1, m: 60, h: 3600, d: 86400 };
const part = /(\d+(?:\.\d+)?)(ms|[smhd])/y;

/** Returns a length of time in seconds. Throws RangeError if it is none. */
export function seconds(d: Duration): number {
  const n = typeof d === "string" ? parse(d) : typeof d === "number" ? d : d.total("seconds");
  if (!Number.isFinite(n)) {
    throw new RangeError(`${String(d)} is no length of time: use seconds, or a string such as "30m", "1h30m" or "7d"`);
  }
  return n;
}

/** Returns a length of time in whole seconds. Throws RangeError if it has a fraction of a second. */
export function wholeSeconds(d: Duration): number {
  const n = seconds(d);
  if (!Number.isSafeInteger(n)) {
    throw new RangeError(`${String(d)} is no whole number of seconds`);
  }
  return n;
}

/** Returns a length of time in milliseconds. Throws RangeError unless it is above 0. */
export function milliseconds(d: Duration): number {
  const ms = Math.round(seconds(d) * 1000);
  if (ms <= 0) {
    throw new RangeError(`${String(d)} is not above 0`);
  }
  return ms;
}

function parse(text: string): number {
  let sum = 0;
  part.lastIndex = 0;
  do {
    const found = part.exec(text);
    if (!found) {
      return NaN;
    }
    sum += Number(found[1]) * units[found[2]!]!;
  } while (part.lastIndex < text.length);
  return sum;
}
