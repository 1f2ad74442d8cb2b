// One collection: its settings. The TTL panel says what a change would do before it is made.
import {html, useEffect, useRef, useState} from '../vendor/libraries.js';
import {call} from '../api.js';
import {about, clock, status, times} from '../state.js';
import {bytes, count, duration, moment, number, ttl} from '../format.js';
import {legalTTL, maxTTL} from '../json.js';
import {draftOf, keepDraft} from '../drafts.js';
import {at, go, link} from '../route.js';
import {Badge, Fault, inUnits, Seconds, secondsOf, Time} from '../parts.js';
import {ahead, Bars, horizons} from '../chart.js';

// fieldsOf are the settings of a collection as the forms have them.
const fieldsOf = c => ({
  ttl: {
    mode: c.defaultTtl > 0 ? 'on' : c.defaultTtl === -1 ? 'each' : 'off',
    ...(c.defaultTtl > 0 ? inUnits(c.defaultTtl) : {n: null, unit: 'days'}),
  },
  warn: c.warnBefore ? inUnits(c.warnBefore) : {n: null, unit: 'minutes'},
  indexing: c.indexingPolicy.indexingMode,
  paths: c.indexingPolicy.includedPaths.map(p => p.path).join('\n'),
  images: c.previousImages,
});
const ttlOf = ({mode, n, unit}) => (mode === 'off' ? null : mode === 'each' ? -1 : secondsOf(n, unit));
const warningOf = ({n, unit}) => (n === null ? null : secondsOf(n, unit));

// labels name the settings, and show their values.
const labels = {
  ttl: ['Time to live', value => ttl(ttlOf(value))],
  warn: ['Warning', value => (value.n === null ? 'none' : `${duration(warningOf(value))} before`)],
  indexing: ['Indexing mode', value => value],
  paths: ['Included paths', value => value.replaceAll('\n', ', ') || 'none'],
  images: ['Last content in events', value => (value ? 'yes' : 'no')],
};

const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);

export function Collection({name, query}) {
  const [c, setCollection] = useState(null);
  const [error, setError] = useState(null);
  const [said, setSaid] = useState('');
  const message = useRef(),
    turn = useRef(0);
  const load = async () => {
    const mine = ++turn.current;
    try {
      const text = await call('collection.get', {collection: name});
      if (mine !== turn.current) return;
      setCollection(JSON.parse(text));
      setError(null);
    } catch (fault) {
      if (mine === turn.current) setError(fault);
    }
  };
  const seq = status.value?.seq;
  useEffect(() => {
    load();
  }, [seq]);
  useEffect(() => {
    if (said && document.activeElement === document.body) message.current.focus(); // its button was off
  }, [said]);
  if (!c) return html`<h1>${name}</h1><${Fault} error=${error} />${!error && html`<p class="loading">Loading…</p>`}`;
  const chosen = query.get('ahead');
  return html`<h1>${name}</h1><${Fault} error=${error} />
    <p class="summary">
      <${Badge} kind=${c.defaultTtl ? 'on' : ''}>TTL ${ttl(c.defaultTtl)}<//>
      <a href=${link('documents', name)}>${count(c.documents, 'document')}</a>,${' '}
      ${c.held > 0 && html`<a href="${link('documents', name)}?held=true">${number(c.held)} held</a>, `}
      ${bytes(c.bytes)} · <a href=${link('forecast', name)}>Forecast</a> ·${' '}
      <a href=${at(['feed'], {collection: name})}>Feed</a> ·${' '}
      <a href=${expired(name)}>What expired</a> ·${' '}
      <span class="faint">changed <${Time} ms=${c._ts * 1000} /></span></p>
    ${!about.value.write && html`<p class="faint">
      This console is read-only: try what a time to live would do; it cannot be saved here.</p>`}
    <p class="good" role="status" tabindex="-1" ref=${message}>${said}</p>
    <${Settings} collection=${c} onLoad=${load} onSaid=${setSaid}
      chosen=${horizons.some(([h]) => h === chosen) ? chosen : ''} />
    ${about.value.write && html`<${Delete} collection=${c} />`}`;
}

const expired = name =>
  at(['feed'], {type: 'DocumentExpired', collection: name, from: new Date(clock() - 86400000).toISOString()});

// Changed lists what others changed since a draft began.
function Changed({draft, stored}) {
  const keys = Object.keys(stored).filter(key => !equal(draft.base[key], stored[key]));
  return html`<section class="card"><h2>The settings have changed since you began to edit them</h2>
    <ul>
      ${keys.map(key => {
        const [label, show] = labels[key];
        return html`<li>
          ${label}: was ${show(draft.base[key])}, is now <strong>${show(stored[key])}</strong>
          ${key in draft.edits && html`, yours is <strong>${show(draft.edits[key])}</strong>`}</li>`;
      })}</ul></section>`;
}

const faster =
  'Somebody was faster: the collection has changed. What you typed is still here: compare, and save again.';

const modes = [
  ['off', 'Off', 'Nothing expires.'],
  ['each', 'On (no default)', 'Only documents with a ttl of their own expire.'],
  ['on', 'On', 'Documents without a ttl expire this long after their last change:'],
];

function Settings({collection: c, chosen, onSaid, onLoad}) {
  const [draft, setDraft] = useState(draftOf(c.id)); // {etag, base, edits}: what is edited of a version's settings
  const stored = fieldsOf(c),
    fields = {...stored, ...draft?.edits},
    outdated = draft && draft.etag !== c._etag;
  const [typed, setTyped] = useState('');
  const [preview, setPreview] = useState(null);
  const [again, setAgain] = useState(0); // the preview is to be made
  const [error, setError] = useState(null);
  const [saving, setSaving] = useState(false);
  const next = ttlOf(fields.ttl),
    warnBefore = warningOf(fields.warn);
  const wrong = fields.ttl.mode === 'on' && !legalTTL(next),
    wrongWarning = warnBefore !== null && !legalTTL(warnBefore);
  const changesTTL = next !== (c.defaultTtl ?? null);
  const dangerous = changesTTL && preview && drastic(preview);
  const ready =
    !saving && !wrong && !wrongWarning && (!changesTTL || preview?.wanted === next) && (!dangerous || typed === c.id);
  const keep = next => {
    keepDraft(next, c.id);
    setDraft(next);
    setTyped(''); // it was for what was shown
    onSaid('');
  };
  const edit = more => {
    const all = Object.entries({...draft?.edits, ...more}).filter(([key, value]) => !equal(value, stored[key]));
    keep(all.length === 0 ? null : {etag: c._etag, base: stored, ...draft, edits: Object.fromEntries(all)});
  };
  const reload = () => {
    setAgain(again + 1);
    onLoad();
  };
  const save = async e => {
    e.preventDefault();
    if (!ready) return;
    setSaving(true);
    // Properties that this page does not know stay as they are.
    const {id, _ts, _etag, documents, bytes, held, ...properties} = c;
    if (warnBefore !== (c.warnBefore ?? null)) properties.warnBefore = warnBefore;
    const paths = fields.paths.split('\n').map(path => path.trim());
    const includedPaths = paths.filter(Boolean).map(path => ({path}));
    const body = {
      ...properties,
      defaultTtl: next,
      previousImages: fields.images,
      indexingPolicy: {...c.indexingPolicy, indexingMode: fields.indexing, includedPaths},
    };
    try {
      // More may be due by now than when the forecast was shown.
      if (changesTTL && typed !== id && drastic(await compare(c, next, chosen))) return setAgain(again + 1);
      await call('collection.replace', {collection: id, body, etag: _etag});
      setError(null);
      keep(null);
      await onLoad();
      onSaid('Saved');
    } catch (fault) {
      setError(fault.code === 412 ? faster : fault);
      if (fault.code === 412) await onLoad();
    } finally {
      setSaving(false);
    }
  };
  const submit = () =>
    html`<button class="primary" disabled=${!ready}>${outdated ? 'Save mine over it' : 'Save'}</button>`;
  const write = about.value.write;
  return html`${outdated && html`<${Changed} draft=${draft} stored=${stored} />`}<form class="card" onSubmit=${save}>
    <fieldset class="plain" disabled=${saving}><legend><h2>Time to live</h2></legend>
      <div class="choices">
        ${modes.map(
          ([value, title, help]) => html`<label class="choice">
            <input type="radio" name="ttl" value=${value} checked=${fields.ttl.mode === value}
              onChange=${() => edit({ttl: {...fields.ttl, mode: value}})} />
            <span><strong>${title}</strong> <span class="faint">${help}</span></span></label>`,
        )}
        <div class="choice-more">
          <${Seconds} label="Time to live" value=${fields.ttl.n} unit=${fields.ttl.unit}
            onChange=${(n, unit) => edit({ttl: {mode: 'on', n, unit}})} />
        </div>
      </div>
      <div class="warning">
        <strong>Warn before the deadline</strong>${' '}
        <span class="faint">by an event that programs can follow; empty for no warning:</span>
        <div class="choice-more">
          <${Seconds} label="Warn before" value=${fields.warn.n} unit=${fields.warn.unit}
            onChange=${(n, unit) => edit({warn: {n, unit}})} />
        </div>
      </div>
    </fieldset>
    <${Fault} error=${wrongWarning && `Warn before: use ${whole}`} />
    <${Fault} error=${wrong && fields.ttl.n !== null && `Use ${whole}`} />
    <${Preview} collection=${c} ttl=${wrong ? undefined : next} chosen=${chosen} again=${again} onPreview=${setPreview}>
      <${Fault} error=${error} />
      ${write &&
      html`<p class="row actions">
        ${dangerous &&
        html`<label class="warn">
          Type <strong>${c.id}</strong> to confirm${' '}
          <input autocomplete="off" spellcheck=${false} value=${typed} onInput=${e => setTyped(e.target.value)} />
        </label>`}
        ${submit()}
        ${draft && html`<button type="button" onClick=${() => keep(null)}>Discard</button>`}
        <button type="button" onClick=${reload}>Reload</button></p>`}
    <//>
    <details open=${['indexing', 'paths', 'images'].some(key => draft && key in draft.edits)}>
      <summary>Index and events</summary>
      <fieldset class="plain" disabled=${!write || saving}><legend class="hidden">Index and events</legend>
        <div class="row">
          <label class="field">Indexing mode
            <select value=${fields.indexing} onChange=${e => edit({indexing: e.target.value})}>
              ${['consistent', 'lazy', 'none'].map(m => html`<option value=${m}>${m}</option>`)}</select></label>
          <label class="field grow">Included paths, one a line
            <textarea rows="2" spellcheck=${false} placeholder="/customerId" value=${fields.paths}
              onInput=${e => edit({paths: e.target.value})}></textarea></label>
        </div>
        <label class="check">
          <input type="checkbox" checked=${fields.images} onChange=${e => edit({images: e.target.checked})} />
          Delete and expiry events have the last content</label>
        ${write && html`<p>${submit()}</p>`}
      </fieldset>
    </details></form>`;
}

const whole = `whole seconds from 1 to ${number(maxTTL)}.`;
const within = {'1h': 'an hour', '24h': 'a day', '7d': '7 days', '30d': '30 days', '365d': 'a year'};
const expiring = f => f.atOnce + f.due;

// compare returns forecasts of a collection as it is and under another default: all has both by
// how far they look ahead. That is as far as shows something of both and a difference, or as is
// chosen. sooner is how many more documents the other default expires within a day, or that span.
async function compare({id: collection, defaultTtl: stored}, wanted, chosen, signal) {
  const all = {},
    same = wanted === (stored ?? null);
  let differing, seen, sooner = 0;
  for (const [span] of horizons) {
    if (span !== chosen && all['24h'] && seen && (same || differing)) continue;
    const bodies = [ahead(span), {...ahead(span), defaultTtl: wanted}];
    const replies = bodies.map(body => call('forecast', {collection, body, signal}));
    all[span] = (await Promise.all(replies)).map(JSON.parse);
    const [today, then] = all[span].map(expiring);
    if (today !== then) differing ??= span;
    if (all[span].every(f => expiring(f) > 0 || f.later === 0)) seen ??= span;
    if (['1h', '24h', chosen].includes(span)) sooner = Math.max(sooner, then - today);
  }
  const asked = Object.keys(all);
  return {all, asked, wanted, same, sooner, differing, seen, span: chosen || seen || asked.at(-1)};
}

// drastic is whether a change needs the name of the collection: it ends more documents
// within a span than a hundred, or one in a hundred.
const drastic = ({all, sooner}) => sooner > Math.min(100, all['1h'][1].documents / 100);

// day is a moment in seconds as a sentence has it: the time if it is near, or else the date.
function day(seconds) {
  if (times.value === 'relative') return `${duration(seconds - clock() / 1000)} from now`;
  if (seconds - clock() / 1000 < 86400) return moment(seconds * 1000, times.value, 0).slice(11, 16);
  const timeZone = times.value === 'utc' ? 'UTC' : undefined;
  return new Date(seconds * 1000).toLocaleDateString('en-GB', {day: 'numeric', month: 'short', timeZone});
}

// sentences say what a setting does to the documents that are there: the first is what counts.
function sentences({all, asked, differing, same}) {
  const span = differing ?? asked.find(span => expiring(all[span][1]) > 0) ?? asked.at(-1);
  const [today, then] = all[span],
    n = expiring(then);
  if (then.documents === 0) return ['There is no document yet.', ''];
  const first = asked.map(span => all[span][0].buckets.find(b => b.due > 0)).find(Boolean);
  const before = expiring(today) > 0 ? number(expiring(today)) : first ? `none before ${day(first.from)}` : 'none';
  const ends = then.atOnce > 0 && then.atOnce === n ? ' at once' : n + then.later > 0 ? ` within ${within[span]}` : '';
  const atOnce = then.atOnce > 0 ? `${number(then.atOnce)} of them at once. ` : 'None expires at once. ';
  return [
    `${n === 0 ? 'No document' : count(n, 'document')} will expire${ends}.${same ? '' : ` Today: ${before}.`}`,
    (n === 0 || n === then.atOnce ? '' : atOnce) +
      (ends && then.never > 0 ? `${number(then.never)} never ${then.never === 1 ? 'does' : 'do'}.` : ''),
  ];
}

const previewAfter = 250; // ms, while somebody types

// Preview shows the forecast as it is beside that under another default.
function Preview({collection: c, ttl: wanted, chosen, again, onPreview, children}) {
  const [shown, setShown] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const abort = new AbortController();
    onPreview(null);
    if (wanted === undefined) return undefined;
    const ask = async () => {
      try {
        const compared = await compare(c, wanted, chosen, abort.signal);
        setShown(compared);
        setError(null);
        onPreview(compared);
      } catch (fault) {
        if (abort.signal.aborted) return;
        setShown(null);
        setError(fault);
      }
    };
    const timer = setTimeout(ask, shown ? previewAfter : 0);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [wanted, c.defaultTtl, chosen, again]);
  if (!shown) return html`<${Fault} error=${error} />${!error && html`<p class="loading">Counting…</p>`}${children}`;
  const [today, then] = shown.all[shown.span];
  const stale = shown.wanted !== wanted,
    same = shown.wanted === (c.defaultTtl ?? null);
  const [first, more] = sentences(shown);
  const most = Math.max(then.atOnce, ...today.buckets.map(b => b.due), ...then.buckets.map(b => b.due));
  const look = span => go(at(['collections', c.id], {ahead: span}), true);
  const half = (title, f) =>
    html`<${Half} title="${title}, TTL ${ttl(f.defaultTtl)}" f=${f} compared=${shown} most=${most} onLook=${look} />`;
  return html`<div class="decide">
      <p class="sentence ${drastic(shown) && !same && !stale ? 'bad' : ''}" aria-live="polite">
        ${wanted === undefined ? 'How long?' : stale ? 'Counting…' : html`<strong>${first}</strong> ${more}`}</p>
      ${children}
    </div>
    ${then.documents > 0 &&
    html`<label class="field inline">Look ahead
        <select value=${shown.span} onChange=${e => look(e.target.value)}>
          ${horizons.map(([h, title]) => html`<option value=${h}>${title}</option>`)}</select></label>
      <div class="${same ? '' : 'beside'} ${stale ? 'stale' : ''}">
        ${half('Today', today)}${!same && half('New', then)}</div>`}
    <${Fault} error=${error} />`;
}

function Half({title, f, compared: {span, seen}, most, onLook}) {
  const [within, wider] = [span, seen].map(span => horizons.find(([h]) => h === span)?.[1]);
  return html`<figure>
    <figcaption>
      <strong>${title}</strong>:${' '}
      ${f.atOnce > 0 && `${number(f.atOnce)} at once, `}
      ${`${number(f.due)} in the next ${within}, ${number(f.later)} later, ${number(f.never)} never`}
    </figcaption>
    ${expiring(f) > 0 || f.later === 0
      ? html`<${Bars} forecast=${f} most=${most} height=${160} title=${title} />`
      : html`<p class="empty">
          All ${number(f.later)} are later${wider && html`:${' '}
          <button type="button" class="more" onClick=${() => onLook(seen)}>show ${wider}</button>`}</p>`}
  </figure>`;
}

function Delete({collection: c}) {
  const [typed, setTyped] = useState('');
  const [error, setError] = useState(null);
  const remove = () =>
    call('collection.delete', {collection: c.id, etag: c._etag}).then(() => go('#/collections'), setError);
  const those = c.documents === 1 ? 'Its document is' : `Its ${number(c.documents)} documents are`;
  return html`<section class="card"><h2>Delete the collection</h2>
    ${c.held > 0
      ? html`<p>${count(c.held, 'document')} ${c.held === 1 ? 'is held: release it' : 'are held: release them'} first.
        </p>`
      : html`<p>${c.documents === 0 ? 'It has no document.' : `${those} deleted with it.`}</p>
          <div class="row">
            <label class="field"><span>Type <strong>${c.id}</strong> to confirm</span>
              <input autocomplete="off" spellcheck=${false} value=${typed} onInput=${e => setTyped(e.target.value)} />
            </label>
            <button type="button" class="danger" disabled=${typed !== c.id} onClick=${remove}>Delete</button></div>`}
    <${Fault} error=${error} /></section>`;
}
