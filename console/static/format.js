// Numbers, lengths of time and moments as people read them.

const grouped = new Intl.NumberFormat('en-US', {maximumFractionDigits: 1});

export const number = n => grouped.format(n);

// count is a number of things: "1 document", "2,052 documents".
export const count = (n, thing) => `${number(n)} ${thing}${n === 1 ? '' : 's'}`;

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 ? n : n.toFixed(1)} ${units[i]}`;
}

export const ms = n => (n < 1000 ? `${number(n)} ms` : `${number(Math.round(n / 100) / 10)} s`);

// units are those of a duration, in seconds.
export const units = [
  ['days', 86400, 'd'],
  ['hours', 3600, 'h'],
  ['minutes', 60, 'min'],
  ['seconds', 1, 's'],
];

// duration is a length of time in its two largest units: "2 d 5 h".
export function duration(seconds) {
  seconds = Math.max(0, Math.floor(seconds));
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return '0 s';
  const parts = [];
  for (const [, size, short] of units.slice(first, first + 2)) {
    const n = Math.floor(seconds / size);
    if (n > 0 || parts.length === 0) parts.push(`${number(n)} ${short}`);
    seconds %= size;
  }
  return parts.join(' ');
}

const two = n => String(n).padStart(2, '0');

// moment is a time in ms as text. fine adds milliseconds.
export function moment(at, mode, now, fine) {
  if (mode === 'relative') {
    const seconds = Math.round((at - now) / 1000);
    if (Math.abs(seconds) < 1) return 'now';
    return seconds < 0 ? `${duration(-seconds)} ago` : `in ${duration(seconds)}`;
  }
  const zone = mode === 'utc' ? 0 : -new Date(at).getTimezoneOffset(); // minutes
  const d = new Date(at + zone * 60000);
  if (isNaN(d)) return String(at);
  const day = [d.getUTCFullYear(), two(d.getUTCMonth() + 1), two(d.getUTCDate())].join('-');
  const text = `${day} ${[d.getUTCHours(), d.getUTCMinutes(), d.getUTCSeconds()].map(two).join(':')}`;
  return (
    text +
    (fine ? '.' + String(d.getUTCMilliseconds()).padStart(3, '0') : '') +
    (mode === 'utc'
      ? ' UTC'
      : ` ${zone < 0 ? '−' : '+'}${two(Math.floor(Math.abs(zone) / 60))}:${two(Math.abs(zone) % 60)}`)
  );
}

// ttl is a defaultTtl in Cosmos DB's words.
export function ttl(value) {
  if (value === null || value === undefined) return 'Off';
  return value === -1 ? 'On (no default)' : `On: ${duration(value)}`;
}
