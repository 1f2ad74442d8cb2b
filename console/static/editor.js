// An editor of JSON and of conditions: CodeMirror, loaded when one is shown. It is in a shadow
// root, where it adopts its style sheets; the content security policy permits no style elements.
// A text area is there until it is loaded, and where it cannot be.
import {html, useEffect, useLayoutEffect, useRef, useState} from './vendor/libraries.js';
import {editors} from './drafts.js';
import {misfit} from './json.js';

let loading;
const load = () => (loading ??= import('./vendor/editor.js'));

const atOnce = 50_000,
  later = 300; // characters of a text that is passed on with each key, else after ms

const edge = 'color-mix(in srgb, var(--faint) 70%, transparent)';
const font = '13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';

// The pictures of CodeMirror's own styles are data URLs, which the policy refuses.
const theme = {
  '&': {background: 'var(--back)', color: 'var(--text)', border: `1px solid ${edge}`, borderRadius: '6px'},
  '&:has([aria-invalid=true])': {borderColor: 'var(--bad)'},
  '&.cm-focused': {outline: '2px solid var(--accent)', outlineOffset: '2px'},
  '.cm-scroller': {font, maxHeight: '60vh'},
  '.cm-content': {caretColor: 'var(--text)', padding: '5px 0'},
  '.cm-line': {padding: '0 9px'},
  '.cm-placeholder': {color: 'var(--faint)'},
  '.cm-gutters': {background: 'var(--card)', color: 'var(--faint)', border: 'none'},
  '.cm-foldPlaceholder': {background: 'var(--card)', color: 'var(--text)', borderColor: 'var(--line)'},
  '&.cm-focused .cm-matchingBracket': {background: 'var(--on-soft)'},
  '&.cm-focused .cm-nonmatchingBracket': {background: 'var(--bad-soft)'},
  '.cm-lintRange-error': {backgroundImage: 'none', textDecoration: 'underline wavy var(--bad)'},
  '.cm-gutter-lint .cm-lint-marker-error': {content: 'normal', lineHeight: '1.5'},
  '.cm-lint-marker-error::before': {content: '"●"', color: 'var(--bad)'},
  '.cm-lintPoint-error::after': {borderBottomColor: 'var(--bad)'},
  '.cm-tooltip': {background: 'var(--back)', color: 'var(--text)', borderColor: 'var(--line)'},
};

const colors = t => [
  {tag: t.propertyName, color: 'var(--accent)'},
  {tag: t.string, color: 'var(--good)'},
  {tag: [t.number, t.bool, t.null], color: 'var(--held)'},
  {tag: t.keyword, fontWeight: 'bold'},
  {tag: t.invalid, color: 'var(--bad)'},
];

// faults marks where a text stops being a document.
const faults = view => {
  const fault = misfit(view.state.doc.toString());
  if (!fault) return [];
  const {at: from, message} = fault;
  return [{from, to: Math.min(from + 1, view.state.doc.length), severity: 'error', message}];
};

// inks colour JSON that is only read. They are highlights, which need no element for each word.
const inks = {};
const word = /("(?:[^"\\]|\\.)*")(\s*:)?|[-+.\w]+/g;

// ink colours the JSON in the first text of an element, and returns what undoes it.
export function ink({firstChild: node}) {
  if (!window.Highlight || !node) return undefined;
  const ranges = [...node.data.matchAll(word)].map(({index, 0: whole, 1: string, 2: colon}) => {
    const kind = colon ? 'name' : string ? 'string' : 'scalar';
    const end = index + (string ?? whole).length;
    const range = new StaticRange({startContainer: node, startOffset: index, endContainer: node, endOffset: end});
    if (!inks[kind]) CSS.highlights.set(`json-${kind}`, (inks[kind] = new Highlight()));
    inks[kind].add(range);
    return [kind, range];
  });
  return () => ranges.forEach(([kind, range]) => inks[kind].delete(range));
}

const cel = {
  token(stream) {
    if (stream.eatSpace()) return null;
    if (stream.match(/^(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)/)) return 'string';
    if (stream.match(/^\d[\w.]*/)) return 'number';
    if (stream.match(/^(?:true|false|null)\b/)) return 'bool';
    if (stream.match(/^(?:doc|params|in|has|exists|all|map|filter)\b/)) return 'keyword';
    stream.match(/^\w+/) || stream.next();
    return null;
  },
};

// Editor edits a text, whose language is json or cel. onInput gets the text when it has
// changed: that of a large one not with each key.
export function Editor({id, label, language, value, rows, hint, invalid, onInput, onRun}) {
  const [m, setModule] = useState(null);
  const [area, host, view, on, before] = [useRef(), useRef(), useRef(), useRef(), useRef()];
  const passed = useRef(value);
  on.current = {onInput, onRun};
  const fault = language === 'json' ? misfit(value) : undefined;
  const wrong = Boolean(invalid || fault);
  useEffect(() => {
    load().then(
      m => {
        const focus = area.current && document.activeElement === area.current;
        const {selectionStart: anchor = 0, selectionEnd: head = 0} = focus ? area.current : {};
        before.current = {focus, selection: {anchor, head}};
        setModule(m);
      },
      () => {},
    );
  }, []);
  useLayoutEffect(() => {
    if (!m) return;
    const root = host.current.shadowRoot ?? host.current.attachShadow({mode: 'open'});
    let timer = 0;
    const pass = () => {
      clearTimeout(timer);
      const text = view.current.state.doc.toString();
      if (text !== passed.current) on.current.onInput((passed.current = text));
    };
    const run = () => {
      pass();
      on.current.onRun?.();
      return Boolean(on.current.onRun);
    };
    passed.current = value;
    view.current = new m.EditorView({
      root,
      parent: root,
      doc: value,
      selection: before.current.selection,
      extensions: [
        m.EditorView.theme(theme),
        m.EditorView.theme({'.cm-content': {minHeight: `calc(${1.5 * rows}em + 10px)`}}),
        m.syntaxHighlighting(m.HighlightStyle.define(colors(m.tags))),
        m.EditorView.lineWrapping,
        m.EditorView.contentAttributes.of({'aria-label': label}),
        m.highlightSpecialChars(),
        m.bracketMatching(),
        m.history(),
        hint ? m.placeholder(hint) : [],
        language === 'cel'
          ? m.StreamLanguage.define(cel)
          : [m.json(), m.lineNumbers(), m.foldGutter(), m.lintGutter(), m.linter(faults)],
        m.keymap.of([{key: 'Mod-Enter', run}]),
        m.keymap.of([...m.defaultKeymap, ...m.historyKeymap, ...m.foldKeymap, ...m.lintKeymap]),
        m.EditorView.updateListener.of(update => {
          if (!update.docChanged) return;
          clearTimeout(timer);
          if (update.state.doc.length <= atOnce) pass();
          else timer = setTimeout(pass, later);
        }),
        m.EditorView.domEventHandlers({
          blur: pass,
          beforeinput(event, v) {
            // Over a selection a browser keeps its colours, by a style attribute, which the policy refuses.
            if (event.inputType !== 'insertText' || event.isComposing || v.state.selection.main.empty) return false;
            v.dispatch(v.state.replaceSelection(event.data), {userEvent: 'input.type', scrollIntoView: true});
            return true;
          },
        }),
      ],
    });
    if (before.current.focus) view.current.focus();
    editors.add(pass);
    return () => {
      editors.delete(pass);
      pass();
      view.current.destroy();
      view.current = null;
    };
  }, [m]);
  useLayoutEffect(() => {
    // what others changed
    if (!view.current || value === passed.current) return;
    passed.current = value;
    view.current.dispatch({changes: {from: 0, to: view.current.state.doc.length, insert: value}});
  }, [value]);
  useLayoutEffect(() => {
    view.current?.contentDOM.setAttribute('aria-invalid', wrong);
  }, [m, wrong]);
  return html`<div class="editor" id=${m && id} ref=${host} hidden=${!m}></div>
    ${!m &&
    html`<textarea id=${id} ref=${area} class="json" aria-label=${label} rows=${rows} spellcheck=${false}
      placeholder=${hint} value=${value} aria-invalid=${wrong}
      onInput=${e => onInput((passed.current = e.target.value))}
      onKeyDown=${e => {
        if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) onRun?.();
      }}></textarea>`}
    ${language === 'json' && html`<p class="fault misfit" role="status" hidden=${!fault}>${fault?.message}</p>`}`;
}
