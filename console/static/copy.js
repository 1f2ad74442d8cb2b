// Copies of requests for other tools.
import {html, useState} from './vendor/libraries.js';
import {about} from './state.js';

// subject is an id as one token of a subject.
const subject = id =>
  [...new TextEncoder().encode(id)]
    .map(b => [String.fromCharCode(b), '%' + b.toString(16).toUpperCase().padStart(2, '0')])
    .map(([plain, escaped]) => (/[A-Za-z0-9_\-=:@~]/.test(plain) ? plain : escaped))
    .join('');
const shell = text => (/^[A-Za-z0-9_./:=@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
const golang = text => (text.includes('`') ? JSON.stringify(text) : '`' + text + '`');
const database = () => about.peek().database;
const option = () => (database() === 'main' ? '' : ` --database ${database()}`);

// upserts are the requests that store a document.
export const upserts = (collection, id, body) => ({
  lapse: `lapse document upsert ${collection} ${id.startsWith('-') ? '-- ' : ''}${shell(id)} ${shell(body)}${option()}`,
  nats: `nats req lapse.${database()}.api.document.upsert.${collection}.${subject(id)} ${shell(body)}`,
  Go: `item, err := client.Upsert(ctx, coll, ${JSON.stringify(id)}, json.RawMessage(${golang(body)}))`,
});

// queries are the requests of a query, whose command line takes flags, if there is a command.
export const queries = (collection, command, flags, body) => ({
  ...(command && {
    lapse:
      [
        `lapse ${command}`,
        collection,
        ...flags.map(([name, value]) => (value === true ? `--${name}` : `--${name} ${shell(String(value))}`)),
      ].join(' ') + option(),
  }),
  nats: `nats req lapse.${database()}.api.query.${collection} ${shell(body)}`,
  Go: `reply, err := lapse.Do(ctx, "query", ${JSON.stringify(collection)}, "", []byte(${golang(body)}))`,
});

// Copy copies texts by name. Where the browser has no clipboard, as under HTTP and another
// name than localhost, it shows them.
export function Copy({texts}) {
  const [shown, setShown] = useState(null);
  const copy = async name => {
    const text = texts()[name];
    try {
      await navigator.clipboard.writeText(text);
      setShown({name});
    } catch {
      setShown({name, text});
    }
  };
  const button = name => html`<button type="button" onClick=${() => copy(name)}>${name}</button>`;
  return html`<span class="row actions copy" role="group" aria-label="Copy as">
      Copy as ${Object.keys(texts()).map(button)}
      <span role="status">${shown && !shown.text && `Copied as ${shown.name}`}</span></span>
    ${shown?.text && html`<pre class="json" tabindex="0" role="region" aria-label=${shown.name}>${shown.text}</pre>`}`;
}
