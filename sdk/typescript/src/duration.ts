/**
 * A length of time: a number of seconds, a string such as `"30m"`, `"1h30m"` or `"7d"`, or
 * a `Temporal.Duration` without months and years.
 */
export type Duration = string | number | { total(unit: "seconds"): number };

const form = /^(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/;

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
  if (/^\d+$/.test(text)) {
    return Number(text);
  }
  const [, d = 0, h = 0, m = 0, s = 0] = form.exec(text) ?? [text, NaN];
  return Number(d) * 86400 + Number(h) * 3600 + Number(m) * 60 + Number(s);
}
