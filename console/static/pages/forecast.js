// Forecast: how many documents come due when.
import {html, useEffect, useState} from '../vendor/libraries.js';
import {call} from '../api.js';
import {clock} from '../state.js';
import {number, ttl} from '../format.js';
import {at, go} from '../route.js';
import {Fault, Picker, Table, Time} from '../parts.js';
import {ahead, Bars, horizons} from '../chart.js';

const zoomedBuckets = 60;
const mostBuckets = 1900; // a forecast has at most 2,000
const refreshEvery = 10000; // ms

// due is the address of the documents that come due in a bucket.
const due = (name, {from, until}) => at(['documents', name], {from, until});

// forecastOf asks for the buckets of a span, or between two moments: a forecast begins now.
async function forecastOf(name, span, zoom, signal) {
  const ask = async body => JSON.parse(await call('forecast', {collection: name, body, signal}));
  if (!zoom) return ask(ahead(span));
  const {from, until} = zoom;
  const next = Math.max(1, until - Math.floor(clock() / 1000));
  const bucket = Math.max(1, Math.ceil((until - from) / zoomedBuckets), Math.ceil(next / mostBuckets));
  const f = await ask({next, bucket});
  const buckets = f.buckets.filter(b => b.until > from && b.from < until);
  return buckets.length > 0 ? {...f, buckets, due: buckets.reduce((sum, b) => sum + b.due, 0)} : f;
}

export function Forecast({name, query}) {
  const span = horizons.some(([h]) => h === query.get('ahead')) ? query.get('ahead') : '24h';
  const [from, until] = ['from', 'until'].map(end => Number(query.get(end)));
  const zoom = from > 0 && until > from ? {from, until} : null;
  const [forecast, setForecast] = useState(null);
  const [error, setError] = useState(null);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    if (!name) return;
    const abort = new AbortController();
    const ask = async () => {
      try {
        setForecast({...(await forecastOf(name, span, zoom, abort.signal)), zoom});
        setError(null);
      } catch (fault) {
        if (abort.signal.aborted) return;
        setForecast(null);
        setError(fault);
      }
    };
    ask();
    const timer = setInterval(() => !document.hidden && ask(), refreshEvery);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [name, span, zoom?.from, zoom?.until, again]);
  const show = more => go(at(['forecast', name], {ahead: span === '24h' ? '' : span, ...more}));
  return html`<h1 class="hidden">Forecast</h1>
    <div class="line">
      <${Picker} bare value=${name} onPick=${picked => go(at(['forecast', picked], {ahead: query.get('ahead')}))} />
      ${name && html`
        <select aria-label="Look ahead" value=${span} onChange=${e => show({ahead: e.target.value})}>
          ${horizons.map(([h, title]) => html`<option value=${h}>next ${title}</option>`)}</select>
        <button type="button" onClick=${() => setAgain(again + 1)}>Refresh</button>`}
      ${zoom && html`<button type="button" onClick=${() => show()}>Zoom out</button>`}
      ${forecast && html`<span class="faint">as of <${Time} ms=${forecast.now * 1000} /></span>`}
    </div>
    <${Fault} error=${error} />
    ${name && !forecast && !error && html`<p class="loading">Loading…</p>`}
    ${forecast && html`<${Sum} f=${forecast} />
      <${Bars} forecast=${forecast} onZoom=${(from, until) => show({from, until})} onPick=${b => go(due(name, b))}
        title=${name} />
      ${forecast.due > 0 && html`<p class="faint">Click a bar for its documents, drag over the bars to zoom.</p>`}
      <details><summary>As a table</summary><${Buckets} name=${name} all=${forecast.buckets} /></details>`}`;
}

// Sum says what the chart shows.
function Sum({f}) {
  const overdue = f.overdue > 0 && ` ${number(f.overdue)} are due, not expired yet.`;
  if (f.zoom) {
    return html`<p>${number(f.due)} come due from <${Time} ms=${f.zoom.from * 1000} /> to${' '}
      <${Time} ms=${f.zoom.until * 1000} />.${overdue}</p>`;
  }
  const rest = `${number(f.later)} later, ${number(f.never)} never`;
  return html`<p>TTL ${ttl(f.defaultTtl)}. Of ${number(f.documents)} documents, ${number(f.due)} come due up to${' '}
    <${Time} ms=${f.until * 1000} />, ${rest}.${overdue}</p>`;
}

const Buckets = ({name, all}) => html`
  <${Table} label="Forecast" head=${[['From'], ['Until'], ['Documents', 'n']]}>
    ${all.map(b => html`<tr key=${b.from}>
      <td><${Time} ms=${b.from * 1000} /></td>
      <td><${Time} ms=${b.until * 1000} /></td>
      <td class="n">${b.due > 0 ? html`<a href=${due(name, b)}>${number(b.due)}</a>` : 0}</td></tr>`)}
  <//>`;
