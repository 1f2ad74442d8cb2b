// One document: its content, when it expires, and its history across lives.
import {html, useEffect, useLayoutEffect, useRef, useState} from '../vendor/libraries.js';
import {ask, call} from '../api.js';
import {about, clock, now, status, times} from '../state.js';
import {duration, moment, number} from '../format.js';
import {content, elements, legalTTL, maxTTL, member, members, misfit, ownTTL, pretty} from '../json.js';
import {Diff, merge} from '../diff.js';
import {draftOf, keepDraft} from '../drafts.js';
import {Editor, ink} from '../editor.js';
import {Copy, upserts} from '../copy.js';
import {at, go, link} from '../route.js';
import {Badge, Confirm, Fault, JSONText, Restore, Seconds, secondsOf, Time} from '../parts.js';

const historyLimit = 50;
const warningWait = 30; // seconds after its time in which the page waits for a warning
const absent = ['collection_not_found', 'document_not_found']; // errors: the history may know more

const button = (title, onClick, disabled) =>
  html`<button type="button" disabled=${disabled} onClick=${onClick}>${title}</button>`;

// afterRelease is the deadline that a held document gets back, in seconds, undefined for none.
function afterRelease(text, defaultTtl) {
  const n = defaultTtl === null ? -1 : (ownTTL(text) ?? defaultTtl);
  return n === -1 ? undefined : Number(member(text, '_ts')) + n;
}

// join puts the newest page of a history before what is known of it, unless a gap lies between.
function join(before, page) {
  const oldest = page.events.at(-1)?.seq;
  const rest = before?.events[0]?.seq >= oldest ? before.events.filter(e => e.seq < oldest) : [];
  return rest.length > 0 ? {events: [...page.events, ...rest], cursor: before.cursor} : page;
}

async function historyOf(name, id, cursor, signal) {
  const text = await call('history', {collection: name, id, body: {limit: historyLimit, cursor}, signal});
  return {events: elements(member(text, 'events')).map(event), cursor: JSON.parse(member(text, 'cursor') ?? 'null')};
}

export function Document({name, id}) {
  // {text, life, shown}; once it does not live, '' and what its life was, if that is known
  const [live, setLive] = useState(null);
  const [collection, setCollection] = useState(null);
  const [history, setHistory] = useState(null); // {events, cursor}: what is older follows the cursor
  const [error, setError] = useState(null);
  const [said, setSaid] = useState('');
  const loading = useRef(),
    message = useRef();
  const load = async () => {
    loading.current?.abort();
    const {signal} = (loading.current = new AbortController());
    const [home, got, past] = await Promise.allSettled([
      call('collection.get', {collection: name, signal}),
      ask('document.get', {collection: name, id, signal}),
      historyOf(name, id, null, signal),
    ]);
    if (signal.aborted) return;
    const failed = [home, got, past].find(({reason}) => reason && !absent.includes(reason.error));
    setError(failed?.reason);
    if (failed && failed !== past) return;
    setCollection(home.value ? JSON.parse(home.value) : null);
    const shown = got.value && pretty(content(got.value.text));
    setLive(before => (got.value ? {...got.value, shown} : {text: '', life: before?.life}));
    setHistory(before => (past.value ? join(before, past.value) : failed ? before : null));
  };
  const text = live?.text,
    events = history?.events ?? [];
  const current = Math.floor(now.value / 1000);
  const passed = live?.life?.at <= current;
  const last = events.find(e => e.type !== 'MutationRejected');
  const warned = events.find(e => e.type === 'DocumentExpiring')?.deadline === live?.life?.at;
  // Once it is due, or its warning is, the page waits for the event that says so.
  const ended = text === '' && ends.includes(last?.type);
  const warnedFor = current - (live?.life?.at - collection?.warnBefore);
  const isWarned = warned || !(warnedFor >= 0 && warnedFor < warningWait);
  const awaited = !ended && (passed || (text === '' && Boolean(last)) || !isWarned);
  const seq = status.value?.seq;
  useEffect(() => {
    const timer = setTimeout(load, awaited ? 500 : 0);
    return () => clearTimeout(timer);
  }, [awaited, awaited ? seq : 0]);
  useEffect(() => () => loading.current?.abort(), []);
  // A change by somebody else shows by the version, the deadline or the hold: an id is the first
  // that begins with it.
  useEffect(() => {
    if (awaited || text === undefined || !collection) return undefined;
    const abort = new AbortController();
    const body = {idPrefix: id, select: ['/id', '/_etag'], deadlines: true, limit: 1};
    const shown = text && JSON.stringify([JSON.parse(member(text, '_etag')), live.life.at, live.life.hold]);
    const look = reply => {
      const [first] = JSON.parse(reply).documents;
      const is = first?.id === id ? JSON.stringify([first._etag, first._deadline, first._hold]) : '';
      if (is !== shown) load();
    };
    call('query', {collection: name, body, signal: abort.signal}).then(look, () => {}); // the next status asks again
    return () => abort.abort();
  }, [seq]);
  useEffect(() => {
    if (said && document.activeElement.matches('body, main')) message.current.focus(); // its control has gone
  }, [said, text]);
  const write = about.value.write && collection;
  const state = ended ? words[last.type].toLowerCase() : passed ? 'expired' : 'does not exist';
  const after = text && collection && afterRelease(text, collection.defaultTtl ?? null);
  const messages = html`<${Fault} error=${error} />
    <p class="good" role="status" tabindex="-1" ref=${message}>${said}</p>`;
  const older = (cursor, page) =>
    setHistory(before => (before.cursor === cursor ? {...page, events: [...before.events, ...page.events]} : before));
  const restore = write && text === '' && {name, id, onChanged: load};
  const timeline =
    events.length > 0 &&
    html`<${History} name=${name} id=${id} ...${history} onOlder=${older} restore=${restore} />`;
  return html`<nav class="crumbs" aria-label="Path"><a href=${link('documents', name)}>${name}</a></nav>
    ${text && collection
      ? html`<${Live} name=${name} id=${id} ...${live} after=${after} collection=${collection}
          warned=${warned} expired=${passed} news=${messages} onSaid=${setSaid} onChanged=${load}>${timeline}<//>`
      : html`<h1><bdi>${id}</bdi></h1>${messages}
          ${!live && !error && html`<p class="loading">Loading…</p>`}
          ${text === '' && last && html`<p class="state"><${Badge} kind="bad">${state}<//></p>`}
          ${text === '' && !last && !error && html`<${Unknown} name=${name} id=${id} collection=${collection} />`}
          ${write && ended && last.body && html`<${Restore} name=${name} id=${id} onChanged=${load}>Restore<//>`}
          ${write && text === '' && html`<${Lost} name=${name} id=${id} onChanged=${load} />`}
          ${timeline}`}`;
}

// Unknown is an id of which the log has nothing.
function Unknown({name, id, collection}) {
  if (!collection)
    return html`<p>There is no collection <strong>${name}</strong>. <a href="#/collections">Collections</a></p>`;
  return html`<p>There is no document with this id, and the log has none that ended.</p>
    <p class="row actions">
      ${about.value.write && button('Create it', () => begin(name, id, '{\n  \n}'))}
      <a href=${at(['feed'], {collection: name, id})}>Feed</a></p>`;
}

// begin opens the form for a new document with what it is to have.
function begin(name, id, text) {
  keepDraft({id, text}, name, '');
  go(at(['documents', name], {new: true}));
}

// At is a time in a sentence: the relative form has its own word.
const At = ({ms}) => html`${times.value === 'relative' ? '' : 'at '}<${Time} ms=${ms} />`;

// State says whether a document is held, expires or never does.
function State({text, life, after, defaultTtl, warned}) {
  const current = Math.floor(now.value / 1000);
  if (life.hold !== null) {
    let next = 'if released, it never expires';
    if (after <= current) next = `overdue for ${duration(current - after)}: if released, it expires at once`;
    else if (after) next = html`if released, it expires <${At} ms=${after * 1000} />`;
    return html`<${Badge} kind="held">held<//>${' '}
      ${life.hold && html`<bdi>${life.hold}</bdi> · `}<span class="faint">${next}</span>`;
  }
  if (life.at === undefined) {
    const own = ownTTL(text) === -1 ? 'by its own ttl, −1' : 'the collection has no default';
    const why = defaultTtl === null ? 'TTL of the collection is off' : own;
    return html`<${Badge}>never expires<//>${' '}<span class="faint">${why}</span>`;
  }
  const ttl = duration(life.at - Number(member(text, '_ts')));
  return html`<${Badge} kind=${life.at > current ? 'on' : 'bad'}>
      <span class="countdown">${life.at > current ? `expires in ${duration(life.at - current)}` : 'expired'}</span>
    <//>${' '}${warned && html`<${Badge} kind="held">warned<//>${' '}`}
    <span class="faint">
      ${times.value !== 'relative' && html`<${At} ms=${life.at * 1000} /> · `}
      ${life.rule === 'document' ? `${ttl} by its own ttl` : `${ttl} by the collection’s default`}</span>`;
}

const faster =
  'Somebody was faster: the document has changed since you looked at it. Check what it is now, and try again.';

const done = {
  replace: 'Saved', patch: 'Time to live changed', touch: 'Renewed', delete: 'Deleted', hold: 'Held',
  release: 'Released',
};

function Live({name, id, text, life, shown, after, collection, warned, expired, news, onSaid, onChanged, children}) {
  const etag = JSON.parse(member(text, '_etag'));
  const [draft, setDraft] = useState(draftOf(name, id)); // {text, base, etag}: the version that it changes
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [changes, setChanges] = useState(0);
  const running = useRef(false),
    edit = useRef();
  const wrong = draft && (misfit(draft.text)?.message ?? otherId(draft.text, id));
  const keep = next => {
    keepDraft(next, name, id);
    setDraft(next);
  };
  const leave = () => {
    keep(null);
    setError(null);
    setTimeout(() => edit.current?.focus());
  };
  // A change is of the version that is shown. A hold is not: it is for the document, whoever
  // writes it meanwhile. The buttons are off until the page shows what came of it.
  const change = async (op, body = '') => {
    if (running.current) return;
    running.current = true;
    setBusy(true);
    onSaid('');
    try {
      const ofVersion = op === 'hold' ? undefined : etag;
      const reply = await call(`document.${op}`, {collection: name, id, body, etag: ofVersion});
      const version = reply && member(reply, '_etag');
      setError(null);
      onSaid(done[op] + (version ? `, version ${JSON.parse(version)}` : ''));
      if (op === 'replace') keep(null);
      setChanges(n => n + 1);
      await onChanged();
    } catch (fault) {
      // A draft stays, and is shown beside the other change.
      setError(fault.code !== 412 ? fault : op === 'replace' ? null : faster);
      if (fault.code === 412) await onChanged();
    }
    running.current = false;
    setBusy(false);
    if (op === 'replace') setTimeout(() => edit.current?.focus());
  };
  const off = busy || expired,
    current = draft?.etag === etag;
  return html`<div class="title"><h1><bdi>${id}</bdi></h1>
      <div class="row actions" role="group" aria-label="Actions">
        ${about.value.write &&
        html`${!draft &&
          html`<button type="button" class="primary" ref=${edit} disabled=${off} onClick=${() => {
            onSaid('');
            keep({text: shown, base: shown, etag});
          }}>Edit</button>`}
          <${Extend} due=${life.at ?? after} text=${text} collection=${collection} changes=${changes}
            drafting=${Boolean(draft)} disabled=${off} onChange=${change} />
          <${Hold} hold=${life.hold} after=${after} disabled=${off} changes=${changes} onChange=${change} />`}
        <${Menu} title="⋯" label="More" changes=${changes}>
          ${about.value.write && button('Duplicate', () => begin(name, `${id}-copy`, pretty(content(text, ['id']))))}
          ${button('Reload', onChanged)}
          <${Copy} texts=${() => ({JSON: shown, ...upserts(name, id, content(text, ['id']))})} />
          ${about.value.write &&
          html`<${Confirm} ask="Delete this document?" disabled=${off || life.hold !== null}
            onYes=${() => change('delete')}>Delete<//>`}
        <//>
      </div>
    </div>
    <p class="state">
      <${State} text=${text} life=${life} after=${after} defaultTtl=${collection.defaultTtl ?? null} warned=${warned} />
    </p>
    <p class="faint">
      version ${etag}, modified <${Time} ms=${Number(member(text, '_ts')) * 1000} />,${' '}
      ${number(new Blob([text]).size)} bytes · <a href=${at(['feed'], {collection: name, id})}>Feed</a></p>
    ${news}<${Fault} error=${error} />
    <div class="document"><div>
      ${!draft
        ? html`<${Content} text=${shown} />`
        : html`${!current &&
            html`<${Conflict} key=${etag} draft=${draft} etag=${etag} shown=${shown} onMerge=${keep} />`}
          <${Editor} id="content" label="Content" language="json" rows=${6} value=${draft.text}
            onInput=${text => keep({...draft, text})} />
          <${Fault} error=${!misfit(draft.text) && wrong} />
          <div class="row actions">
            <button type="button" class="primary" disabled=${off || Boolean(wrong)}
              onClick=${() => change('replace', draft.text)}>
              ${current ? 'Save' : 'Save mine over it'}</button>
            ${button(current ? 'Cancel' : 'Discard mine', leave, busy)}</div>`}
    </div><div>${children}</div></div>`;
}

// otherId says that the content has another id than the document.
function otherId(text, id) {
  const own = member(text, 'id');
  return own !== undefined && JSON.parse(own) !== id && `The content has the id ${own}: change it back, or remove it.`;
}

function Content({text}) {
  const around = useRef();
  useLayoutEffect(() => ink(around.current.querySelector('pre')), [text]);
  return html`<div ref=${around}><${JSONText} text=${text} label="Content" /></div>`;
}

// Menu is a button that opens more of them. It closes after a change, by Escape, and when one leaves it.
function Menu({title, label, changes, children}) {
  const menu = useRef();
  const close = () => {
    if (!menu.current.open) return;
    menu.current.open = false;
    menu.current.querySelector('summary').focus();
  };
  const left = ({currentTarget, relatedTarget: to}) => {
    if (to && !currentTarget.contains(to)) currentTarget.open = false;
  };
  useEffect(() => {
    if (changes > 0) close();
  }, [changes]);
  return html`<details class="menu" ref=${menu} onFocusOut=${left} onKeyDown=${e => e.key === 'Escape' && close()}>
    <summary aria-label=${label}>${title}</summary><div tabindex="-1">${children}</div></details>`;
}

// Extend gives a document more time, or another end.
function Extend({due, text, collection, changes, drafting, disabled, onChange}) {
  const [n, setN] = useState(null);
  const [unit, setUnit] = useState('hours');
  const current = Math.floor(now.value / 1000),
    seconds = secondsOf(n, unit);
  const left = Math.max(0, (due ?? 0) - current);
  const standard = (collection.defaultTtl ?? -1) === -1 ? 'never' : `in ${duration(collection.defaultTtl)}`;
  const set = ttl => () => onChange('patch', {ttl});
  const by = (title, more) => button(left > 0 ? `${title} more` : `In ${title}`, set(left + more));
  return html`<${Menu} title=${left > 0 ? 'Extend' : 'Expire'} changes=${changes}>
    ${drafting && html`<p class="faint">Save or discard your draft first.</p>`}
    <fieldset class="plain" disabled=${disabled || drafting}>
      <legend class="hidden">Time to live</legend>
      ${by('1 hour', 3600)}${by('1 day', 86400)}
      <span class="row actions">In${' '}
        <${Seconds} label="Time to live" value=${n} unit=${unit} onChange=${(value, u) => {
          setN(value);
          setUnit(u);
        }} />
        ${button('Set', set(seconds), !legalTTL(seconds))}</span>
      ${n !== null && !legalTTL(seconds) && html`<p class="bad">Use whole seconds from 1 to ${number(maxTTL)}.</p>`}
      ${button('Never', set(-1))}${button(`By the collection: ${standard}`, set(null))}
      ${collection.defaultTtl == null && html`<p class="faint">TTL of the collection is off: nothing expires.</p>`}
      ${due !== undefined &&
      button(`Touch: ${duration(due - Number(member(text, '_ts')))} from now`, () => onChange('touch'))}
    </fieldset><//>`;
}

// Hold keeps a document from its end, and releases it.
function Hold({hold, after, disabled, changes, onChange}) {
  const [reason, setReason] = useState('');
  useEffect(() => setReason(''), [changes]);
  const held = hold !== null,
    overdue = after <= Math.floor(now.value / 1000);
  return html`<${Menu} title=${held ? 'Release' : 'Hold'} changes=${changes}>
    <fieldset class="plain" disabled=${disabled}>
      <legend class="hidden">Hold</legend>
      ${held &&
      html`<${Confirm} ask=${overdue ? 'Release it and let it expire?' : 'Release it?'}
        onYes=${() => onChange('release')}>Release<//>`}
      <input class="reason" aria-label="Reason of the hold" placeholder="reason, optional" maxlength="1024"
        autocomplete="off" value=${reason} onInput=${e => setReason(e.target.value)} />
      ${button(held ? 'Change the reason' : 'Hold', () => onChange('hold', reason && {reason}))}
      <span class="faint">It neither expires nor can be deleted until its release.</span>
    </fieldset><//>`;
}

const clip = text => (text === undefined ? 'removed' : text.length > 300 ? text.slice(0, 300) + '…' : text);

// Conflict shows a draft beside the change that somebody else made meanwhile, and merges them.
function Conflict({draft, etag, shown, onMerge}) {
  const [picks, setPicks] = useState({}); // mine or theirs, by the path of a member
  const [{merged, clashes, mine}, setMerged] = useState({clashes: [], mine: draft.text});
  useEffect(() => {
    const clashes = [],
      readable = !misfit(draft.text);
    const merged = readable && merge(draft.base, draft.text, shown, clashes, picks);
    setMerged({merged, clashes, mine: readable ? pretty(draft.text) : draft.text});
  }, [draft, shown, picks]);
  return html`<section class="card"><h2>The document has changed since your draft began</h2>
    <p>Your draft is of version ${draft.etag}; now it is version ${etag}.</p>
    <div class="beside">
      <div><h3>Mine</h3><${Diff} before=${draft.base} after=${mine} label="My changes" /></div>
      <div><h3>Theirs</h3><${Diff} before=${draft.base} after=${shown} label="Their changes" /></div>
    </div>
    ${clashes.map(
      ({path, ...values}) => html`<fieldset class="plain clash" key=${path}>
        <legend>Both changed <code>${path || 'all of it'}</code>:</legend>
        ${['mine', 'theirs'].map(
          whose => html`<label class="choice">
            <input type="radio" name=${path} checked=${picks[path] === whose}
              onChange=${() => setPicks({...picks, [path]: whose})} />
            <span>${whose} <code>${clip(values[whose])}</code></span></label>`,
        )}</fieldset>`,
    )}
    ${merged &&
    html`<button type="button" class="primary" disabled=${clashes.some(({path}) => !picks[path])}
      onClick=${() => onMerge({text: pretty(merged), base: shown, etag})}>Merge both into my draft</button>`}
    <details><summary>Common version ${draft.etag}</summary>
      <${JSONText} text=${draft.base} label="Common version" />
    </details></section>`;
}

// Lost is the draft of a document that lives no more.
function Lost({name, id, onChanged}) {
  const [draft, setDraft] = useState(draftOf(name, id));
  const [error, setError] = useState(null);
  const leave = () => {
    keepDraft(null, name, id);
    setDraft(null);
  };
  const create = () =>
    call('document.create', {collection: name, id, body: draft.text}).then(() => {
      leave();
      onChanged();
    }, setError);
  if (!draft) return '';
  return html`<section class="card"><h2>Your draft of version ${draft.etag}</h2>
    <${JSONText} text=${draft.text} label="Draft" /><${Fault} error=${error ?? misfit(draft.text)} />
    <div class="row actions">
      <button type="button" class="primary" disabled=${Boolean(misfit(draft.text))} onClick=${create}>
        Create it again</button>
      ${button('Discard mine', leave)}
    </div></section>`;
}

const words = {
  DocumentCreated: 'Created', DocumentReplaced: 'Replaced', DocumentTouched: 'Touched', DocumentDeleted: 'Deleted',
  DocumentExpiring: 'Warned', DocumentExpired: 'Expired', DocumentHeld: 'Held', DocumentReleased: 'Released',
  MutationRejected: 'Rejected', CollectionDeleted: 'Deleted with its collection',
};
const lasts = ['DocumentDeleted', 'DocumentExpired'],
  ends = [...lasts, 'CollectionDeleted'],
  versions = ['DocumentCreated', 'DocumentReplaced'];

// event is an event of the history; its body stays as text.
function event(text) {
  const e = Object.fromEntries(members(text));
  for (const name of Object.keys(e)) if (name !== 'body') e[name] = JSON.parse(e[name]);
  return e;
}

// History is a timeline, newest first. Each version is compared with the one before it.
// restore is set while the document does not live.
function History({name, id, events, cursor, onOlder, restore}) {
  const [error, setError] = useState(null);
  const older = () =>
    historyOf(name, id, cursor).then(page => {
      setError(null);
      onOlder(cursor, page);
    }, setError);
  return html`<h2>History</h2><${Compare} events=${events.filter(e => versions.includes(e.type) && e.body)} />
    <ol class="timeline">
      ${events.map((e, i) => {
        const before = events.slice(i + 1).find(o => versions.includes(o.type));
        return html`<li key=${e.seq} class=${ends.includes(e.type) ? 'end' : ''}>
          <${Event} e=${e} before=${e.type === 'DocumentReplaced' ? before : undefined}
            open=${i === 0 && lasts.includes(e.type)} restore=${restore} />
          ${e.type === 'DocumentCreated' && before && html`<p class="life">A new life begins here.</p>`}</li>`;
      })}</ol>
    ${cursor && button('Older', older)}<${Fault} error=${error} />`;
}

// Compare shows the difference between any two versions.
function Compare({events}) {
  const [picked, setPicked] = useState({});
  const [open, setOpen] = useState(false);
  if (events.length < 2) return '';
  const of = (which, otherwise) => events.find(e => e.seq === picked[which]) ?? otherwise;
  const title = e => `${number(e.seq)}, ${words[e.type]} ${moment(Date.parse(e.time), times.value, clock())}`;
  const [from, to] = [of('from', events.at(-1)), of('to', events[0])];
  const select = (which, label, chosen) => html`<label class="field">${label}
    <select value=${chosen.seq} onChange=${e => setPicked({...picked, [which]: Number(e.target.value)})}>
      ${events.map(e => html`<option value=${e.seq}>${title(e)}</option>`)}</select></label>`;
  return html`<details onToggle=${e => setOpen(e.target.open)}><summary>Compare two versions</summary>
    ${open &&
    html`<div class="row">${select('from', 'From', from)}${select('to', 'To', to)}</div>
      <${Diff} before=${pretty(content(from.body))} after=${pretty(content(to.body))} label="Difference" />`}
  </details>`;
}

// note is what an event says besides its type.
function note(e) {
  switch (e.type) {
    case 'DocumentExpiring':
      return html`, expires <${At} ms=${e.deadline * 1000} />`;
    case 'DocumentExpired':
      return html`, by the ${e.rule}’s ttl of ${duration(e.ttl)}`;
    case 'DocumentCreated':
      return e.restored && `, restored from version ${e.restored}`;
    case 'DocumentHeld':
    case 'DocumentReleased':
      return JSON.parse(e.body).reason && html`: <bdi>${JSON.parse(e.body).reason}</bdi>`;
    case 'MutationRejected':
      return html`: ${JSON.parse(e.body).message}`;
  }
  return '';
}

function Event({e, before, open: initially, restore}) {
  const [open, setOpen] = useState(initially);
  const isVersion = versions.includes(e.type);
  return html`<p><strong>${words[e.type] ?? e.type}</strong>${note(e)}${' '}
      <span class="faint"><${Time} ms=${Date.parse(e.time)} fine />, sequence ${number(e.seq)}
      ${e.traceparent && `, trace ${e.traceparent.slice(3, 35)}`}</span></p>
    ${e.body &&
    (isVersion || lasts.includes(e.type)) &&
    html`<details open=${open} onToggle=${event => setOpen(event.target.open)}>
      <summary>${before ? 'Changes' : isVersion ? 'Content' : 'Last content'}</summary>
      ${open &&
      (before
        ? html`<${Diff} before=${pretty(content(before.body))} after=${pretty(content(e.body))}
            label="Changes at sequence ${e.seq}" />`
        : html`<${JSONText} text=${pretty(content(e.body))} label="Content at sequence ${e.seq}" />`)}
      ${open && restore && isVersion && html`<${Restore} ...${restore} version=${e.seq}>Restore this version<//>`}
    </details>`}`;
}
