// Charts, drawn by uPlot.
import {html, plotStyle, uPlot, useLayoutEffect, useRef} from './vendor/libraries.js';
import {clock, now, theme, times} from './state.js';
import {count, duration, moment, number} from './format.js';

const sheet = new CSSStyleSheet();
sheet.replaceSync(plotStyle);
document.adoptedStyleSheets.push(sheet);

const dark = matchMedia('(prefers-color-scheme: dark)');
const probe = document.body.appendChild(document.createElement('i'));
probe.hidden = true;

// color is the value of a variable of the style sheet in the scheme that is shown.
function color(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// usePlot keeps a plot in an element: as wide as it, drawn again when the colours change.
function usePlot(options, data, deps) {
  const element = useRef(),
    plot = useRef();
  useLayoutEffect(() => {
    // the plot changes together with the page around it
    const at = element.current;
    if (!at) return; // it has gone before it was drawn
    const width = () => Math.max(160, at.clientWidth);
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot({width: width(), ...options()}, data, at);
    };
    make();
    const resized = new ResizeObserver(() => {
      if (plot.current && plot.current.width !== width())
        plot.current.setSize({width: width(), height: plot.current.height});
    });
    resized.observe(at);
    dark.addEventListener('change', make);
    return () => {
      resized.disconnect();
      dark.removeEventListener('change', make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [...deps, theme.value]);
  useLayoutEffect(() => {
    plot.current?.setData(data);
  }, [data]);
  return element;
}

const axis = () => ({
  stroke: color('--faint'),
  grid: {stroke: color('--line'), width: 1},
  ticks: {stroke: color('--line'), width: 1},
  font: '12px system-ui, sans-serif',
});

const whole = n => (Number.isInteger(n) ? number(n) : '');
const counts = () => ({...axis(), values: (_, all) => all.map(whole), size: 70, space: 30});

// Line is a small chart of values over the last hour, or less. data is [moments in s, values, …],
// and names are those of the values if there are several.
export function Line({title, last, data, names = [], show = number, least = 1}) {
  const at = data[0].map(at => at - data[0].at(-1));
  const line = (name, fill) => ({stroke: color(name), fill: fill && color(fill), width: 1.5, points: {show: false}});
  const steps = {incrs: [10, 20, 30, 60, 120, 300, 600, 1200], space: 60, size: 26};
  const element = usePlot(
    () => ({
      height: 110,
      legend: {show: false},
      cursor: {show: false},
      scales: {
        x: {time: false, range: (_, from) => [Math.min(from, -60), 0]},
        y: {range: (_, low, most) => [0, Math.max(least, most * 1.1)]},
      },
      axes: [
        {...axis(), ...steps, values: (_, all) => all.map(at => (at === 0 ? 'now' : '−' + duration(-at)))},
        {...axis(), values: (_, all) => all.map(n => (show === number ? whole(n) : show(n))), size: 62, space: 30},
      ],
      series: [{}, line('--accent', '--accent-soft'), line('--bad')].slice(0, data.length),
    }),
    [at, ...data.slice(1)],
    [],
  );
  const keys = names.map((name, i) => html` <span class=${i === 0 ? 'key' : 'key bad'}>${name}</span>`);
  return html`<figure class="chart"><figcaption>${title} <strong>${last}</strong>${keys}</figcaption>
    <div ref=${element} role="img" aria-label="${title}: ${last}"></div></figure>`;
}

// horizons are how far a forecast looks ahead, with its buckets.
export const horizons = [
  ['1h', 'hour', '2m'],
  ['24h', '24 hours', '1h'],
  ['7d', '7 days', '6h'],
  ['30d', '30 days', '1d'],
  ['365d', 'year', '7d'],
];

// ahead is the part of a forecast request that asks for a horizon.
export const ahead = span => ({next: span, bucket: horizons.find(([h]) => h === span)[2]});

const day = 86400;
const steps = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, day, 2 * day, 7 * day, 28 * day, 84 * day,
  365 * day];

// dayOf is the day of a moment on an axis: "Sat 28", or "28 Nov" where it is one among many.
function dayOf(at, step, mode) {
  const zone = mode === 'utc' ? {timeZone: 'UTC'} : {};
  const part = form => new Intl.DateTimeFormat('en-US', {...form, ...zone}).format(at * 1000);
  const date = part({day: 'numeric'});
  return step >= day ? `${date} ${part({month: 'short'})}` : `${part({weekday: 'short'})} ${date}`;
}

// label is a moment on an axis, as precise as its step needs; midnight is its day.
function label(at, step, mode) {
  if (mode === 'relative') {
    const in_ = at - clock() / 1000;
    return Math.abs(in_) < step / 2 ? 'now' : (in_ < 0 ? '−' : '+') + duration(Math.abs(in_));
  }
  const time = moment(at * 1000, mode, now.peek()).slice(11, 19);
  if (step >= day || time === '00:00:00') return dayOf(at, step, mode);
  return step >= 60 ? time.slice(0, 5) : time;
}

const moments = (mode, first = -Infinity) => ({
  ...axis(),
  values: (_, all, __, ___, step) => all.map(at => (at < first ? '' : label(at, step, mode))),
  incrs: steps,
  space: 72,
  size: 28,
});

const bars = name => ({
  stroke: color(name),
  fill: color(name),
  width: 0,
  points: {show: false},
  paths: uPlot.paths.bars({size: [1, 100], gap: 2, align: 1}),
});

// text writes a text above a value of a chart, within it.
function text(u, words, at, value) {
  const {ctx} = u;
  ctx.save();
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.fillStyle = color('--text');
  const half = ctx.measureText(words).width / 2;
  const {left, width, top} = u.bbox;
  ctx.textAlign = 'center';
  const x = Math.min(Math.max(u.valToPos(at, 'x', true), left + half), left + width - half);
  ctx.fillText(words, x, Math.max(u.valToPos(value, 'y', true) - 5 * devicePixelRatio, top + 11 * devicePixelRatio));
  ctx.restore();
}

// nowLine draws where the clock is.
function nowLine(u) {
  const x = u.valToPos(clock() / 1000, 'x', true);
  const {left, top, width, height} = u.bbox;
  if (x < left || x > left + width) return;
  u.ctx.save();
  u.ctx.strokeStyle = color('--text');
  u.ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  u.ctx.beginPath();
  u.ctx.moveTo(x, top);
  u.ctx.lineTo(x, top + height);
  u.ctx.stroke();
  u.ctx.restore();
}

// Hour is what expired in the last hour, and what comes due in the next, by the minute: an
// array of [second, expired, due], of which one may be null.
export function Hour({minutes, title, onPick}) {
  const mode = times.value;
  const data = [0, 1, 2].map(i => minutes.map(minute => minute[i]));
  const on = useRef();
  on.current = {minutes, onPick};
  const under = u => {
    const at = u.posToVal(u.cursor.left, 'x');
    return on.current.minutes.find(([from]) => from <= at && at < from + 60);
  };
  const hover = u => {
    const [from, expired, due] = (u.cursor.left >= 0 && under(u)) || [];
    const parts = [expired > 0 && `${number(expired)} expired`, due > 0 && `${number(due)} come due`].filter(Boolean);
    u.over.title = parts.length > 0 ? `${moment(from * 1000, mode, clock())}: ${parts.join(', ')}` : '';
  };
  const nameMost = u => {
    const most = on.current.minutes.reduce((a, b) => (Math.max(b[1], b[2]) > Math.max(a[1], a[2]) ? b : a));
    const n = Math.max(most[1], most[2]);
    if (n > 0) text(u, number(n), most[0] + 30, n);
  };
  const element = usePlot(
    () => ({
      height: 200,
      legend: {show: false},
      cursor: {y: false, points: {show: false}, drag: {x: false, y: false}},
      scales: {
        x: {time: false, range: (_, from, to) => [from, to + 60]},
        y: {range: (_, low, most) => [0, Math.max(4, 1.15 * most)]},
      },
      axes: [moments(mode), counts()],
      series: [{}, bars('--faint'), bars('--accent')],
      hooks: {setCursor: [hover], draw: [nowLine, nameMost]},
    }),
    data,
    [mode],
  );
  return html`<div class="bars" ref=${element} role="img" aria-label=${title}></div>`;
}

// Bars is a forecast: documents due by time. onZoom gets the seconds dragged over, onPick
// the bucket that is clicked.
export function Bars({forecast, most, onZoom, onPick, height = 240, title}) {
  const {buckets} = forecast;
  const width = forecast.bucket; // the first and the last may be cut, but bars are of one width
  const begins = buckets.map((b, i) => (i === 0 ? b.until - width : b.from));
  const due = buckets.map(b => b.due);
  const {atOnce} = forecast;
  // What expires at once is a bar before the first.
  const withFirst = [[begins[0] - width, ...begins], [null, ...due], [atOnce, ...due.map(() => null)]];
  const data = atOnce > 0 ? withFirst : [begins, due];
  const mode = times.value;
  const on = useRef();
  on.current = {zoom: onZoom, pick: onPick}; // of the page as it is, which a plot outlives
  // under is the bucket under the pointer.
  const under = u => {
    const at = u.posToVal(u.cursor.left, 'x');
    return u.cursor.left >= 0 && buckets.find((b, i) => b.due > 0 && begins[i] <= at && at < begins[i] + width);
  };
  const click = u => {
    const bucket = under(u);
    if (bucket) on.current.pick(bucket);
  };
  const hover = u => {
    const bucket = under(u);
    const first = data[2] && u.cursor.left >= 0 && u.posToVal(u.cursor.left, 'x') < begins[0];
    u.over.title = first ? `at once: ${count(atOnce, 'document')}` : '';
    if (bucket) u.over.title = `${moment(bucket.from * 1000, mode, clock())}: ${count(bucket.due, 'document')}`;
    u.over.style.cursor = bucket && onPick ? 'pointer' : '';
  };
  const zoom = u => {
    if (!onZoom || u.select.width <= 4) return;
    const from = Math.floor(u.posToVal(u.select.left, 'x'));
    const until = Math.ceil(u.posToVal(u.select.left + u.select.width, 'x'));
    u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
    const [first] = buckets; // its bar begins before now
    on.current.zoom(Math.max(from, first.from), until > first.from ? until : first.until);
  };
  const names = u => {
    if (atOnce > 0) text(u, `at once: ${number(atOnce)}`, begins[0] - width / 2, atOnce);
    const largest = Math.max(...due);
    if (largest > 0) text(u, number(largest), begins[due.indexOf(largest)] + width / 2, largest);
  };
  const element = usePlot(
    () => ({
      height,
      legend: {show: false},
      cursor: {y: false, points: {show: false}, drag: {x: Boolean(onZoom), y: false, setScale: false}},
      scales: {
        x: {time: false, range: () => [data[0][0], data[0].at(-1) + width]},
        y: {range: (_, low, top) => [0, Math.max(4, 1.15 * (most ?? top))]},
      },
      axes: [moments(mode, begins[0]), counts()],
      series: [{}, bars('--accent'), bars('--bad')].slice(0, data.length),
      hooks: {
        ready: [u => onPick && u.over.addEventListener('click', () => click(u))],
        setCursor: [hover],
        setSelect: [zoom],
        draw: [nowLine, names],
      },
    }),
    data,
    [forecast, mode, most],
  );
  const sum = `${title}: ${count(forecast.due, 'document')}`;
  return html`<div class="bars" ref=${element} role="img" aria-label=${sum}></div>`;
}
