// Go to a document by its id, living or gone, from every page.
import {html, useEffect, useRef, useState} from './vendor/libraries.js';
import {call} from './api.js';
import {at, go, link, route} from './route.js';
import {listCollections} from './parts.js';

const atOnce = 6; // requests

// knownTo returns the collections in which an id is or was.
async function knownTo(id) {
  const names = (await listCollections()).map(c => c.id),
    known = [];
  const ask = async () => {
    for (let name; (name = names.shift()) !== undefined;) {
      try {
        await call('history', {collection: name, id, body: {limit: 1}});
        known.push(name);
      } catch (fault) {
        if (fault.code !== 404) throw fault;
      }
    }
  };
  await Promise.all(Array.from({length: atOnce}, ask));
  return known.sort();
}

export function GoTo() {
  const [id, setId] = useState('');
  const [said, setSaid] = useState('');
  const input = useRef();
  useEffect(() => {
    const focus = e => {
      if (
        e.key !== '/' ||
        e.ctrlKey ||
        e.metaKey ||
        e.altKey ||
        e.target.matches('input, textarea, select') ||
        e.composedPath()[0].isContentEditable
      )
        return;
      e.preventDefault();
      input.current.focus();
      input.current.select();
    };
    addEventListener('keydown', focus);
    return () => removeEventListener('keydown', focus);
  }, []);
  useEffect(() => setSaid(''), [route.value]);
  const find = async e => {
    e.preventDefault();
    try {
      const known = await knownTo(id);
      const here = route.peek().parts[1];
      const links = known.map(name => html`<a href=${link('documents', name, id)}>${name}</a> `);
      if (known.length === 1) go(link('documents', known[0], id));
      else if (known.length > 1) setSaid(html`It is in ${links}`);
      else
        setSaid(
          html`No document has or had this id. ${here &&
            html`<a href=${at(['documents', here], {idPrefix: id})}>Ids of ${here} that begin with it</a>`}`,
        );
    } catch (fault) {
      setSaid(fault.message);
    }
  };
  return html`<form class="goto" role="search" onSubmit=${find}>
    <input ref=${input} type="search" required spellcheck=${false} autocomplete="off" aria-label="Go to an id"
      placeholder="Go to an id ( / )" value=${id} onInput=${e => setId(e.target.value)} onKeyDown=${e => {
      if (e.key === 'Escape') setSaid('');
    }} />
    <p role="status">${said}</p></form>`;
}
