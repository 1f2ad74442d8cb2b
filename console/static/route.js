// The address behind #/: a path, and a query with all that decides what the page shows.
import {signal} from './vendor/libraries.js';

function parse() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').map(part => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return {parts, query: new URLSearchParams(query)};
}

export const route = signal(parse());

addEventListener('hashchange', () => {
  const before = route.peek().parts.join('/');
  route.value = parse();
  if (before !== route.peek().parts.join('/')) {
    scrollTo(0, 0);
    document.querySelector('main')?.focus({preventScroll: true});
  }
});

// link is the fragment of a page; ids may have any character.
export const link = (...parts) => '#/' + parts.map(encodeURIComponent).join('/');

// at is the fragment of a page with its query, an object or pairs. What is empty is left out.
export function at(parts, query) {
  const given = [...(Array.isArray(query) ? query : Object.entries(query))].filter(
    ([, value]) => value !== '' && value !== undefined && value !== null && value !== false,
  );
  return link(...parts) + (given.length > 0 ? '?' + new URLSearchParams(given) : '');
}

// go opens a page. It reports false if that is the page that is open. With replace, Back
// leads to the page before this one.
export function go(fragment, replace) {
  if (fragment === (location.hash || '#/')) return false;
  if (replace) location.replace(fragment);
  else location.hash = fragment;
  return true;
}
