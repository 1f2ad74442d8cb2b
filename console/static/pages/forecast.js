// Forecast: how many documents come due when.
import {html, useEffect, useState} from '../vendor/libraries.js';
import {call} from '../api.js';
import {number, ttl} from '../format.js';
import {at, go} from '../route.js';
import {Fault, Picker, Table, Time} from '../parts.js';
import {ahead, Bars, horizons} from '../chart.js';

const zoomedBuckets = 60,
  mostBuckets = 1900; // a forecast has at most 2,000

// due is the address of the documents that come due in a bucket.
const due = (name, {from, until}) => at(['documents', name], {from, until});

// zoomed asks for the buckets between two moments: a forecast begins now.
async function zoomed(name, {from, until}, signal) {
  const next = Math.max(1, until - Math.floor(Date.now() / 1000));
  const bucket = Math.max(1, Math.ceil((until - from) / zoomedBuckets), Math.ceil(next / mostBuckets));
  const f = JSON.parse(await call('forecast', {collection: name, body: {next, bucket}, signal}));
  const buckets = f.buckets.filter(b => b.until > from && b.from < until);
  return {...f, buckets: buckets.length > 0 ? buckets : f.buckets};
}

export function Forecast({name, query}) {
  const span = horizons.some(([h]) => h === query.get('ahead')) ? query.get('ahead') : '24h';
  const [from, until] = ['from', 'until'].map(end => Number(query.get(end)));
  const zoom = from > 0 && until > from;
  const show = more => go(at(['forecast', name], {ahead: span === '24h' ? '' : span, ...more}));
  const [forecast, setForecast] = useState(null);
  const [error, setError] = useState(null);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    if (!name) return;
    const abort = new AbortController();
    const ask = zoom
      ? zoomed(name, {from, until}, abort.signal)
      : call('forecast', {collection: name, body: ahead(span), signal: abort.signal}).then(JSON.parse);
    ask.then(
      f => {
        setForecast(f);
        setError(null);
      },
      fault => {
        if (!abort.signal.aborted) {
          setForecast(null);
          setError(fault);
        }
      },
    );
    return () => abort.abort();
  }, [name, span, zoom && from, zoom && until, again]);
  const f = forecast;
  return html`<h1>Forecast</h1>
    <div class="row">
      <${Picker} value=${name} onPick=${picked => {
        go(at(['forecast', picked], {ahead: query.get('ahead')}));
      }} />
      ${
        name &&
        html`<label class="field">Look ahead
        <select value=${span} onChange=${e => show({ahead: e.target.value})}>
          ${horizons.map(([h, title]) => html`<option value=${h}>${title}</option>`)}
          </select>
          </label>
        <button type="button" onClick=${() => setAgain(again + 1)}>Refresh</button>`
      }
      ${zoom && html`<button type="button" onClick=${() => show()}>Whole span</button>`}
    </div>
    <${Fault} error=${error} />
    ${
      f &&
      html`
      <p>TTL ${ttl(f.defaultTtl)}. Of ${number(f.documents)} documents, ${number(f.due)} come due before <${Time}
        ms=${f.until * 1000} />, ${number(f.later)} later, ${number(f.never)} never${f.overdue > 0
        ? `; ${number(f.overdue)} are overdue`
        : ''}.</p>
      <${Bars} forecast=${f} onZoom=${(from, until) => show({from, until})} onPick=${b => go(due(name, b))}
        title=${name} />
      ${f.due > 0 && html`<p class="faint">Click a bar for its documents, drag over the bars to zoom.</p>`}
      <details><summary>As a table</summary>
        <${Table} label="Forecast" head=${[['From'], ['Until'], ['Documents', 'n']]}>
          ${f.buckets.map(b => html`<tr key=${b.from}><td><${Time} ms=${b.from * 1000} /></td>
            <td><${Time} ms=${b.until * 1000} /></td>
            <td class="n">${b.due > 0 ? html`<a href=${due(name, b)}>${number(b.due)}</a>` : 0}</td>
            </tr>`)}
        <//></details>`
    }`;
}
