// Import: documents from a file with a JSON object a line. The file is sent in parts of whole
// lines, so that an import can be stopped, and goes on where it was.
import {html, useState} from './vendor/libraries.js';
import {call} from './api.js';
import {count, number} from './format.js';
import {elements, member} from './json.js';
import {Refused, save, useWork} from './many.js';
import {Fault} from './parts.js';

const partSize = 1 << 20,
  longest = 3 << 20; // bytes of a request, and those that the console takes
const newline = 10;
const spans = ['hour', 'day', 'week', '30 days', 'year'];

// part returns the lines of a file from a byte on.
async function part(file, from) {
  const rest = file.slice(from, from + longest),
    bytes = new Uint8Array(await rest.arrayBuffer());
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
  const input = (option, label, placeholder) =>
    html`<label class="field half">
      ${label} <input id="import-${option}" spellcheck=${false} autocomplete="off" placeholder=${placeholder}
      value=${options[option]} onInput=${e => set({[option]: e.target.value})} />
      </label>`;
  const run = (dryRun, begin) =>
    work.start(async signal => {
      let f = begin;
      const more = [
        ['id', options.id],
        ['op', options.op],
        ['dryRun', dryRun],
        ...(options.expires ? [['expires', options.expires]] : []),
        ...options.drop
          .split(',')
          .map(path => path.trim())
          .filter(Boolean)
          .map(path => ['drop', path]),
      ];
      while (f.at < file.size && !signal.aborted) {
        setFar(f);
        work.say(`${number(Math.floor((100 * f.at) / file.size))} % …`);
        const {lines, bytes, newlines} = await part(file, f.at);
        if (bytes === 0)
          throw new Error(
            `Line ${number(f.line + 1)} is longer than ${number(longest)} bytes, and no document is: take it out.`,
          );
        const text = await call('import', {collection: name, more, body: lines});
        const said = JSON.parse(text),
          refused = elements(member(text, 'refused'));
        f = {
          dryRun,
          at: f.at + bytes,
          line: f.line + newlines,
          count: sum(f.count, said),
          due: said.due.map((n, i) => n + (f.due[i] ?? 0)),
          refused: [...f.refused, ...said.refused.map(({line, message}) => [f.line + line, message])],
          texts: [
            ...f.texts,
            ...refused.map(text => member(text, 'document') ?? JSON.parse(member(text, 'text'))),
          ],
        };
      }
      setFar(f);
      work.say(f.at < file.size ? 'stopped' : dryRun ? 'Nothing is stored yet' : 'Imported');
      if (!dryRun) onDone();
    });
  const begin = {at: 0, line: 0, count: {}, due: [], refused: [], texts: []};
  const c = far?.count,
    stored = c?.created + c?.replaced,
    would = far?.dryRun ? 'would be ' : '';
  return html`<details class="card"><summary>Import from a file</summary>
    <div class="row">
      <label
        class="field half">A JSON object a line <input type="file" accept=".jsonl,.ndjson,.json,.txt"
        onChange=${e => {
        setFile(e.target.files[0]);
        set({});
      }} /></label>
      ${input('id', 'Path of the id', '/id')}${input('expires', 'Path of the moment it ends',
        '/expireAt')}${input('drop', 'Paths to leave out', '/expireAt, /_rev')}
      <label
        class="field">A document that is there <select value=${options.op} onChange=${e => set({op: e.target.value})}>
        <option value="upsert">is replaced</option><option value="create">stays</option>
        </select>
        </label>
        </div>
    <div class="row actions">
      <button type="button" disabled=${!file || work.busy} onClick=${() => run(true, begin)}>Dry run</button>
      <button type="button" class="primary" disabled=${!file || work.busy}
        onClick=${() => run(false, begin)}>Import</button>
      ${far && far.at < file.size && !work.busy &&
        html`<button type="button" onClick=${() => run(far.dryRun, far)}>Go on after line ${number(far.line)}
        </button>`}
      ${work.busy && html`<button type="button" onClick=${work.stop}>Stop</button>`}
      <span role="status">${work.state}</span></div>
    <${Fault} error=${work.error} />
    ${
      c?.lines > 0 &&
      html`<p>
        ${count(c.lines,
        'line')}: ${number(c.created)} ${would}created, ${number(c.replaced)} ${would}replaced${c.existed > 0 &&
        `, ${number(c.existed)} there already`}${c.past > 0 &&
        `, ${number(c.past)} past their moment and left out`}.${' '}
      ${stored > 0 &&
        `Within the next ${spans.map((span,
        i) => `${span} ${number(far.due[i])}`).join(', ')} expire; ${number(c.never)} never ${c.never === 1
        ? 'does' : 'do'}.`}
        </p>
      <${Refused} all=${far.refused} by="Line" />
      ${c.more > 0 &&
        html`<p class="faint">
        ${number(c.more)} more refused lines are not kept: import a smaller file to see them.</p>`}
      ${
        far.texts.length > 0 &&
        html`<button type="button" onClick=${() =>
          save(
            far.texts.map(text => text + '\n'),
            `${name}-refused.ndjson`,
          )}>Download refused lines</button>`
      }`
    }
  </details>`;
}
