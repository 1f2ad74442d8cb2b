// One collection: its settings. The TTL panel says what a change would do before it is made.
import {html, useEffect, useRef, useState} from '../vendor/libraries.js';
import {call} from '../api.js';
import {about, clock} from '../state.js';
import {bytes, count, number, ttl} from '../format.js';
import {at, go, link} from '../route.js';
import {Badge, Fault, inUnits, Seconds, secondsOf, Time} from '../parts.js';
import {ahead, Bars, horizons} from '../chart.js';

const maxTTL = 2147483647;

export function Collection({name, query}) {
  const [said, setSaid] = useState('');
  const [text, setText] = useState(null);
  const [error, setError] = useState(null);
  const load = () =>
    call('collection.get', {collection: name}).then(t => {
      setText(t);
      setError(null);
    }, setError);
  useEffect(() => {
    load();
  }, []);
  if (!text) return html`<h1>${name}</h1><${Fault} error=${error} />`;
  const c = JSON.parse(text);
  return html`<h1>${name}</h1><${Fault} error=${error} />
    <p class="summary"><${Badge} kind=${c.defaultTtl ? 'on' : ''}>TTL ${ttl(c.defaultTtl)}<//>
      <a href=${link('documents', name)}>${count(c.documents, 'document')}
        </a>, ${c.held > 0 &&
        html`<a href="${link('documents', name)}?held=true">${number(c.held)} held</a>, `}${bytes(c.bytes)} · <a
        href=${link('forecast', name)}>Forecast</a> · <a href="#/feed?collection=${name}">Feed</a> · <a
        href=${at(['feed'],
        {type: 'DocumentExpired', collection: name,
        from: new Date(clock() - 86400000).toISOString()})}>What expired</a> · <span
        class="faint">changed <${Time} ms=${c._ts * 1000} />
        </span>
        </p>
    <${Settings} key=${c._etag} collection=${c}
      span=${horizons.some(([h]) => h === query.get('ahead')) ? query.get('ahead') : '24h'}
      onChanged=${async saved => {
      setSaid('');
      await load();
      if (saved) setSaid('Saved');
    }} />
    <p class="good" role="status">${said}</p>
    ${about.value.write && html`<${Delete} collection=${c} />`}`;
}

// sentence says what a setting does to the documents that are there.
function sentence({then: f, sooner}) {
  const expire = f.atOnce === 1 || f.documents === 1 ? 'expires' : 'expire';
  const of = `${number(f.atOnce)} of ${count(f.documents, 'document')} ${expire} at once`;
  const more = [
    ['1h', 'hour'],
    ['24h', 'day'],
  ]
    .filter(([span]) => sooner[span] > f.atOnce)
    .map(([span, title]) => `${number(sooner[span])} more than today within the next ${title}`);
  const sum = more.length > 0 ? ` In all, ${more.join(', ')}.` : '';
  return `${of}; ${number(f.never)} never ${f.never === 1 ? 'does' : 'do'}.${sum}`;
}

// compare returns forecasts of a collection as it is and under another default. sooner are,
// by the span, how many more documents that one expires within it.
async function compare(collection, defaultTtl, span, signal) {
  const spans = [...new Set([span, '1h', '24h'])];
  const bodies = spans.flatMap(span => [ahead(span), {...ahead(span), defaultTtl}]);
  const all = await Promise.all(
    bodies.map(async body => JSON.parse(await call('forecast', {collection, body, signal}))),
  );
  const sooner = Object.fromEntries(
    spans.map((span, i) => [span, Math.max(0, all[2 * i + 1].atOnce + all[2 * i + 1].due - all[2 * i].due)]),
  );
  return {today: all[0], then: all[1], wanted: defaultTtl, sooner};
}

// drastic is whether a change needs the name of the collection: it ends more documents
// within a span than a hundred, or one in a hundred.
const drastic = ({then, sooner}) => Math.max(...Object.values(sooner)) > Math.min(100, then.documents / 100);

function Settings({collection: c, span, onChanged}) {
  const write = about.value.write;
  const had = c.defaultTtl > 0 ? inUnits(c.defaultTtl) : {n: null, unit: 'days'};
  const [mode, setMode] = useState(
    c.defaultTtl === undefined || c.defaultTtl === null ? 'off' : c.defaultTtl === -1 ? 'each' : 'on',
  );
  const [n, setN] = useState(had.n);
  const [unit, setUnit] = useState(had.unit);
  const warned = c.warnBefore ? inUnits(c.warnBefore) : {n: null, unit: 'minutes'};
  const [warnN, setWarnN] = useState(warned.n);
  const [warnUnit, setWarnUnit] = useState(warned.unit);
  const [indexing, setIndexing] = useState(c.indexingPolicy.indexingMode);
  const [paths, setPaths] = useState(c.indexingPolicy.includedPaths.map(p => p.path).join('\n'));
  const [images, setImages] = useState(c.previousImages);
  const [typed, setTyped] = useState('');
  const [preview, setPreview] = useState(null);
  const [error, setError] = useState(null);
  const [saving, setSaving] = useState(false);
  const [again, setAgain] = useState(0); // the preview is to be made

  const seconds = secondsOf(n, unit);
  const legal = n => Number.isInteger(n) && n >= 1 && n <= maxTTL;
  const wrong = mode === 'on' && !legal(seconds);
  const warnBefore = warnN === null ? null : secondsOf(warnN, warnUnit);
  const wrongWarning = warnBefore !== null && !legal(warnBefore);
  const next = mode === 'off' ? null : mode === 'each' ? -1 : seconds;
  const changesTTL = next !== (c.defaultTtl ?? null);
  const dangerous = changesTTL && preview && drastic(preview);
  const ready =
    !wrong && !wrongWarning && (!changesTTL || preview?.wanted === next) && (!dangerous || typed === c.id);

  const save = async e => {
    e.preventDefault();
    if (!ready || saving) return;
    setSaving(true);
    // Properties that this page does not know stay as they are.
    const {id, _ts, _etag, documents, bytes, ...properties} = c;
    if (warnBefore !== (c.warnBefore ?? null)) properties.warnBefore = warnBefore;
    const body = {
      ...properties,
      defaultTtl: next,
      previousImages: images,
      indexingPolicy: {
        ...c.indexingPolicy,
        indexingMode: indexing,
        includedPaths: paths
          .split('\n')
          .map(p => p.trim())
          .filter(Boolean)
          .map(path => ({path})),
      },
    };
    try {
      // More may be due by now than when the forecast was shown.
      if (changesTTL && typed !== c.id && drastic(await compare(c.id, next, span))) {
        setAgain(again + 1);
        return;
      }
      await call('collection.replace', {collection: c.id, body, etag: c._etag});
      await onChanged(true);
    } catch (fault) {
      setError(
        fault.code === 412
          ? new Error(
              'Somebody was faster: the collection has changed since you looked at it.' +
                ' Load it again, and check your change.',
            )
          : fault,
      );
    } finally {
      setSaving(false);
    }
  };

  return html`<form class="card" onSubmit=${save}>
    <fieldset class="plain"><legend><h2>Time to live</h2></legend>
      <div class="choices">
        ${[
          ['off', 'Off', 'Nothing expires.'],
          ['each', 'On (no default)', 'Only documents with a ttl of their own expire.'],
          ['on', 'On', 'Documents without a ttl expire this long after their last change:'],
        ].map(
          ([value, title, help]) => html`
          <label class="choice">
            <input type="radio" name="ttl" value=${value} checked=${mode === value}
            onChange=${() => setMode(value)} />
            <span><strong>${title}</strong> <span class="faint">${help}</span></span></label>`,
        )}
        <div class="choice-more"><${Seconds} label="Time to live" value=${n} unit=${unit} onChange=${(
          value,
          u,
        ) => {
          setN(value);
          setUnit(u);
          setMode('on');
        }} /></div>
      </div>
      <fieldset class="plain warning" disabled=${!write}>
        <strong>Warn before the deadline</strong> <span
        class="faint">with DocumentExpiring; empty for no warning:</span>
        <div class="choice-more"><${Seconds} label="Warn before" value=${warnN} unit=${warnUnit} onChange=${(
          value,
          u,
        ) => {
          setWarnN(value);
          setWarnUnit(u);
        }} /></div></fieldset>
      <p class="fault" role="alert"
        hidden=${!wrongWarning}>Warn before: use whole seconds from 1 to ${number(maxTTL)}.</p>
      <p class="fault" role="alert" hidden=${!wrong || n === null}>Use whole seconds from 1 to ${number(maxTTL)}.</p>
      <${Preview} collection=${c.id} now=${c.defaultTtl ?? null} ttl=${wrong ? undefined : next} span=${span}
        again=${again} onPreview=${setPreview} />
    </fieldset>
    <fieldset class="plain" disabled=${!write}><legend><h2>Index and events</h2></legend>
      <div class="row">
        <label class="field">Indexing mode
          <select value=${indexing} onChange=${e => setIndexing(e.target.value)}>
            ${['consistent', 'lazy', 'none'].map(m => html`<option value=${m}>${m}</option>`)}</select></label>
        <label class="field grow">Included paths, one a line
          <textarea rows="2" spellcheck=${false} placeholder="/customerId" value=${paths}
            onInput=${e => setPaths(e.target.value)}>
            </textarea>
            </label>
      </div>
      <label class="check">
        <input type="checkbox" checked=${images}
        onChange=${e => setImages(e.target.checked)} /> Delete and expiry events have the last content</label>
    </fieldset>
    ${
      write &&
      dangerous &&
      html`<label class="field warn">
        ${preview.then.atOnce > 0 ? `${count(preview.then.atOnce, 'document')} will expire at once`
        : `${count(Math.max(...Object.values(preview.sooner)), 'document')} will expire sooner`}. Type <strong>
        ${c.id}
        </strong> to confirm
      <input autocomplete="off" spellcheck=${false} value=${typed} onInput=${e => setTyped(e.target.value)} /></label>`
    }
    <${Fault} error=${error} />
    ${
      write &&
      html`<p class="actions"><button class="primary" disabled=${!ready || saving}>Save</button>${' '}
      <button type="button" onClick=${() => onChanged()}>Load again</button></p>`
    }
  </form>`;
}

const previewAfter = 250; // ms, while somebody types

// Preview shows the forecast as it is beside that under another default.
function Preview({collection, now, ttl: wanted, span, again, onPreview}) {
  const [shown, setShown] = useState(null);
  const [error, setError] = useState(null);
  const latest = useRef();
  useEffect(() => {
    const abort = (latest.current = new AbortController());
    onPreview(null);
    if (wanted === undefined) return;
    const ask = async () => {
      try {
        const compared = await compare(collection, wanted, span, abort.signal);
        setShown(compared);
        setError(null);
        onPreview(compared);
      } catch (fault) {
        if (!abort.signal.aborted) {
          setShown(null);
          setError(fault);
        }
      }
    };
    const timer = setTimeout(ask, shown ? previewAfter : 0);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [wanted, span, again]);
  if (!shown) return html`<${Fault} error=${error} />`;
  const {today, then} = shown;
  const stale = shown.wanted !== wanted;
  const same = shown.wanted === now;
  const most = Math.max(then.atOnce, ...today.buckets.map(b => b.due), ...then.buckets.map(b => b.due));
  return html`<p class="sentence ${drastic(shown) && !same && !stale ? 'bad' : ''}" aria-live="polite">
    ${wanted === undefined ? 'How long?' : stale ? 'Counting…' : sentence(shown)}
    </p>
    <label class="field inline">Look ahead
      <select value=${span} onChange=${e => go(at(['collections', collection], {ahead: e.target.value}), true)}>
        ${horizons.map(([h, title]) => html`<option value=${h}>${title}</option>`)}
        </select>
        </label>
    <div class="${same ? '' : 'beside'} ${stale ? 'stale' : ''}">
      <${Half} title="Today, TTL ${ttl(today.defaultTtl)}" f=${today} span=${span} most=${most} />
      ${!same && html`<${Half} title="New, TTL ${ttl(then.defaultTtl)}" f=${then} span=${span} most=${most} />`}
    </div>
    <${Fault} error=${error} />`;
}

function Half({title, f, span, most}) {
  const within = horizons.find(([h]) => h === span)[1];
  return html`<figure>
    <figcaption><strong>${title}</strong>: ${f.atOnce > 0 && `${number(f.atOnce)} at once, `}
      ${`${number(f.due)} in the next ${within}, ${number(f.later)} later, ${number(f.never)} never`}</figcaption>
    <${Bars} forecast=${f} most=${most} height=${160} title=${title} /></figure>`;
}

function Delete({collection: c}) {
  const [typed, setTyped] = useState('');
  const [error, setError] = useState(null);
  const remove = async () => {
    try {
      await call('collection.delete', {collection: c.id, etag: c._etag});
      go('#/collections');
    } catch (fault) {
      setError(fault);
    }
  };
  return html`<section class="card"><h2>Delete the collection</h2>
    ${
      c.held > 0
        ? html`<p>
          ${count(c.held, 'document')} ${c.held === 1 ? 'is' : 'are'} held: release ${c.held === 1 ? 'it'
          : 'them'} first.</p>`
        : html`
    <p>${c.documents === 1 ? 'Its document is' : `Its ${number(c.documents)} documents are`} deleted with it.</p>
    <div class="row"><label class="field"><span>Type <strong>${c.id}</strong> to confirm</span>
      <input autocomplete="off" spellcheck=${false} value=${typed} onInput=${e => setTyped(e.target.value)} /></label>
    <button type="button" class="danger" disabled=${typed !== c.id} onClick=${remove}>Delete</button></div>`
    }
    <${Fault} error=${error} /></section>`;
}
