// Drafts of documents, which the tab keeps until they are saved or discarded: across reloads,
// Back and links.

const kept = new Map(),
  unsaved = new Set();
const persistAfter = 300; // ms, while somebody types
let timer = 0;

const keyOf = parts => JSON.stringify(['draft', location.pathname, ...parts]);

// draftOf returns the draft of a document, null if there is none.
export function draftOf(...parts) {
  const key = keyOf(parts);
  if (!kept.has(key)) kept.set(key, JSON.parse(sessionStorage.getItem(key)));
  return kept.get(key);
}

// keepDraft keeps a draft, and none if it is null.
export function keepDraft(draft, ...parts) {
  const key = keyOf(parts);
  kept.set(key, draft);
  unsaved.add(key);
  clearTimeout(timer);
  timer = setTimeout(persist, persistAfter);
}

function persist() {
  for (const key of unsaved) {
    try {
      if (kept.get(key)) sessionStorage.setItem(key, JSON.stringify(kept.get(key)));
      else sessionStorage.removeItem(key);
      unsaved.delete(key);
    } catch {
      /* too large for the browser, which asks before it leaves */
    }
  }
}

// editors are functions that pass on what was typed last.
export const editors = new Set();

addEventListener('beforeunload', event => {
  editors.forEach(pass => pass());
  persist();
  if (unsaved.size > 0) event.preventDefault();
});
