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

// Line is a small chart of one value over the last hour, or less. data is [moments in s, values].
export function Line({title, last, data, show = number}) {
  const element = usePlot(
    () => ({
      height: 110,
      legend: {show: false},
      cursor: {show: false},
      scales: {
        x: {time: false, range: (_, from) => [Math.min(from, -60), 0]},
        y: {range: (_, least, most) => [0, Math.max(1, most * 1.1)]},
      },
      axes: [
        {
          ...axis(),
          values: (_, all) => all.map(at => (at === 0 ? 'now' : '−' + duration(-at))),
          incrs: [10, 20, 30, 60, 120, 300, 600, 1200],
          space: 60,
          size: 26,
        },
        {...axis(), values: (_, all) => all.map(show), size: 62, space: 30},
      ],
      series: [
        {},
        {stroke: color('--accent'), fill: color('--accent-soft'), width: 1.5, points: {show: false}},
      ],
    }),
    [data[0].map(at => at - data[0].at(-1)), data[1]],
    [],
  );
  return html`<figure class="chart"><figcaption>${title} <strong>${last}</strong></figcaption>
    <div ref=${element} role="img" aria-label="${title}: ${last}"></div>
    </figure>`;
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

// label is a moment on an axis, as precise as its step needs.
function label(at, step, mode) {
  if (mode === 'relative') return at * 1000 <= clock() ? 'now' : '+' + duration(at - clock() / 1000);
  const text = moment(at * 1000, mode, now.peek());
  return step >= 86400 ? text.slice(5, 10) : step >= 60 ? text.slice(11, 16) : text.slice(11, 19);
}

// Bars is a forecast: documents due by time. onZoom gets the seconds dragged over, onPick
// the bucket that is clicked.
export function Bars({forecast, most, onZoom, onPick, height = 240, title}) {
  const {buckets} = forecast;
  const width = forecast.bucket; // the first and the last may be cut, but bars are of one width
  const begins = buckets.map((b, i) => (i === 0 ? b.until - width : b.from));
  // What expires at once is a bar before the first.
  const data =
    forecast.atOnce > 0
      ? [
          [begins[0] - width, ...begins],
          [null, ...buckets.map(b => b.due)],
          [forecast.atOnce, ...buckets.map(() => null)],
        ]
      : [begins, buckets.map(b => b.due)];
  const mode = times.value;
  const on = useRef();
  on.current = {zoom: onZoom, pick: onPick}; // of the page as it is, which a plot outlives
  const under = u => {
    // the pointer
    const at = u.posToVal(u.cursor.left, 'x');
    return (
      u.cursor.left >= 0 && buckets.find((b, i) => b.due > 0 && begins[i] <= at && at < begins[i] + width)
    );
  };
  const element = usePlot(
    () => ({
      height,
      legend: {show: false},
      cursor: {y: false, points: {show: false}, drag: {x: Boolean(onZoom), y: false, setScale: false}},
      scales: {
        x: {time: false, range: () => [data[0][0], data[0].at(-1) + width]},
        y: {range: (_, least, top) => [0, Math.max(1, 1.05 * (most ?? top))]},
      },
      axes: [
        {
          ...axis(),
          values: (_, all, __, ___, step) => all.map(at => (at < begins[0] ? '' : label(at, step, mode))),
          incrs: [
            1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2419200,
            7257600, 31536000,
          ],
          space: 72,
          size: 28,
        },
        {
          ...axis(),
          values: (_, all) => all.map(n => (Number.isInteger(n) ? number(n) : '')),
          size: 70,
          space: 30,
        },
      ],
      series: [
        {},
        ...['--accent', '--bad']
          .slice(0, data.length - 1)
          .map(name => ({
            stroke: color(name),
            fill: color(name),
            width: 0,
            points: {show: false},
            paths: uPlot.paths.bars({size: [1, 100], gap: 2, align: 1}),
          })),
      ],
      hooks: {
        ready: [
          u => {
            if (onPick)
              u.over.addEventListener('click', () => {
                const bucket = under(u);
                if (bucket) on.current.pick(bucket);
              });
          },
        ],
        setCursor: [
          u => {
            const bucket = under(u);
            const atOnce = data[2] && u.cursor.left >= 0 && u.posToVal(u.cursor.left, 'x') < begins[0];
            u.over.title = bucket
              ? `${moment(bucket.from * 1000, mode, clock())}: ${count(bucket.due, 'document')}`
              : atOnce
                ? `at once: ${count(forecast.atOnce, 'document')}`
                : '';
            u.over.style.cursor = bucket && onPick ? 'pointer' : '';
          },
        ],
        setSelect: [
          u => {
            if (onZoom && u.select.width > 4) {
              const from = Math.floor(u.posToVal(u.select.left, 'x')),
                until = Math.ceil(u.posToVal(u.select.left + u.select.width, 'x'));
              u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
              const [first] = buckets; // its bar begins before now
              on.current.zoom(Math.max(from, first.from), until > first.from ? until : first.until);
            }
          },
        ],
      },
    }),
    data,
    [forecast, mode, most],
  );
  return html`<div ref=${element} class="bars" role="img"
    aria-label="${title}: ${number(forecast.due)} of ${number(forecast.documents)} documents come due">
    </div>`;
}
