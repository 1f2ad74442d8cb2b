// Import: documents from a file with a JSON object a line. The file is sent in parts of whole
// lines, so that an import can be stopped, and goes on where it was.
import {html, useState} from './vendor/libraries.js';
import {call} from './api.js';
import {count, number} from './format.js';
import {elements, member} from './json.js';
import {Refused, save, useWork} from './many.js';
import {Fault} from './parts.js';

const partSize = 1 << 20; // bytes of a request
const longest = 3 << 20; // that the console takes
const mostRefused = 10000; // lines that are kept
const newline = 10;
const spans = ['hour', 'day', 'week', '30 days', 'year'];

// part returns the lines of a file from a byte on.
async function part(file, from) {
  const rest = file.slice(from, from + longest);
  const bytes = new Uint8Array(await rest.arrayBuffer());
  const isLast = from + bytes.length === file.size;
  const end =
    isLast && bytes.length <= partSize
      ? bytes.length
      : bytes.lastIndexOf(newline, partSize) + 1 || bytes.indexOf(newline) + 1 || (isLast ? bytes.length : 0);
  return {
    lines: rest.slice(0, end),
    bytes: end,
    newlines: bytes.subarray(0, end).reduce((n, byte) => n + (byte === newline), 0),
  };
}

// sum adds what became of a part.
const sum = (a, b) =>
  Object.fromEntries(
    ['lines', 'created', 'replaced', 'existed', 'past', 'never', 'more'].map(name => [
      name,
      (a[name] ?? 0) + b[name],
    ]),
  );

// guess says what a file is of which no line is a document.
function guess(file, n) {
  const kind = file.name.match(/\.(\w+)$/)?.[1].toUpperCase() ?? 'file';
  return `None of the first ${count(n, 'line')} is a document: “${file.name}” seems to be a ${kind} that is not ` +
    'NDJSON, which has one JSON object a line. Nothing more of it was sent.';
}

const begin = {at: 0, line: 0, count: {}, due: [], refused: [], texts: []};

// after is how far an import is after a part.
function after(f, text, {bytes, newlines}) {
  const said = JSON.parse(text);
  const lines = elements(member(text, 'refused'));
  const room = Math.max(0, mostRefused - f.refused.length);
  const texts = lines.map(line => member(line, 'document') ?? JSON.parse(member(line, 'text')));
  return {
    at: f.at + bytes,
    line: f.line + newlines,
    count: sum(f.count, {...said, more: said.more + Math.max(0, lines.length - room)}),
    due: said.due.map((n, i) => n + (f.due[i] ?? 0)),
    refused: [...f.refused, ...said.refused.slice(0, room).map(({line, message}) => [f.line + line, message])],
    texts: [...f.texts, ...texts.slice(0, room)],
  };
}

export function Import({name, onDone}) {
  const [file, setFile] = useState(null);
  const [options, setOptions] = useState({id: '/id', expires: '', drop: '', op: 'upsert'});
  const [far, setFar] = useState(null); // what was done of the file
  const work = useWork();
  const set = change => {
    setOptions({...options, ...change});
    setFar(null);
    work.say('');
  };
  const input = (option, label, placeholder) => html`<label class="field half">${label}
    <input id="import-${option}" spellcheck=${false} autocomplete="off" placeholder=${placeholder}
      value=${options[option]} onInput=${e => set({[option]: e.target.value})} /></label>`;
  const paths = options.drop.split(',').map(path => path.trim()).filter(Boolean);
  const run = (dryRun, from) => {
    const task = async signal => {
      const more = [['id', options.id], ['op', options.op], ['dryRun', dryRun], ...paths.map(path => ['drop', path])];
      if (options.expires) more.push(['expires', options.expires]);
      let f = {...from, dryRun};
      while (f.at < file.size && !signal.aborted) {
        setFar(f);
        work.say(`${number(Math.floor((100 * f.at) / file.size))} % …`);
        const next = await part(file, f.at);
        if (next.bytes === 0) {
          const line = number(f.line + 1);
          throw new Error(`Line ${line} is longer than ${number(longest)} bytes, and no document is: take it out.`);
        }
        f = {...after(f, await call('import', {collection: name, more, body: next.lines}), next), dryRun};
        const {lines, created, replaced, existed, past} = f.count;
        if (from.at === 0 && lines > 1 && created + replaced + existed + past === 0) {
          setFar(f);
          throw new Error(guess(file, lines));
        }
      }
      setFar(f);
      work.say(f.at < file.size ? 'stopped' : dryRun ? 'Nothing is stored yet' : 'Imported');
      if (!dryRun) onDone();
    };
    work.start(task, `Import into ${name}`);
  };
  const choose = e => {
    setFile(e.target.files[0]);
    set({});
  };
  return html`<div class="card import">
    <div class="row">
      <label class="field half">A JSON object a line
        <input type="file" accept=".jsonl,.ndjson,.json,.txt" onChange=${choose} /></label>
      ${input('id', 'Path of the id', '/id')}
      ${input('expires', 'Path of the moment it ends', '/expireAt')}
      ${input('drop', 'Paths to leave out', '/expireAt, /_rev')}
      <label class="field">A document that is there
        <select value=${options.op} onChange=${e => set({op: e.target.value})}>
          <option value="upsert">is replaced</option><option value="create">stays</option></select></label>
    </div>
    <div class="row actions">
      <button type="button" disabled=${!file || work.busy} onClick=${() => run(true, begin)}>Dry run</button>
      <button type="button" class="primary" disabled=${!file || work.busy}
        onClick=${() => run(false, begin)}>Import</button>
      ${far && far.at < file.size && !work.busy && html`
        <button type="button" onClick=${() => run(far.dryRun, far)}>Go on after line ${number(far.line)}</button>`}
      ${work.busy && html`<button type="button" onClick=${work.stop}>Stop</button>`}
      <span role="status">${work.state}</span></div>
    <${Fault} error=${work.error} />
    ${far?.count.lines > 0 && html`<${Became} name=${name} far=${far} />`}
  </div>`;
}

// Became says what became of the lines of a file.
function Became({name, far: {count: c, due, dryRun, refused, texts}}) {
  const stored = c.created + c.replaced;
  const would = dryRun ? 'would be ' : '';
  const parts = [`${number(c.created)} ${would}created`, `${number(c.replaced)} ${would}replaced`];
  if (c.existed > 0) parts.push(`${number(c.existed)} there already`);
  if (c.past > 0) parts.push(`${number(c.past)} past their moment and left out`);
  const within = spans.map((span, i) => `${span} ${number(due[i])}`).join(', ');
  const never = `${number(c.never)} never ${c.never === 1 ? 'does' : 'do'}`;
  return html`<p>${count(c.lines, 'line')}: ${parts.join(', ')}.
      ${stored > 0 && ` Within the next ${within} expire; ${never}.`}</p>
    <${Refused} all=${refused} by="Line" />
    ${c.more > 0 && html`<p class="faint">
      ${number(c.more)} more refused lines are not kept: import a smaller file to see them.</p>`}
    ${texts.length > 0 && html`
      <button type="button" onClick=${() => save(texts.map(text => text + '\n'), `${name}-refused.ndjson`)}>
        Download refused lines</button>`}`;
}
