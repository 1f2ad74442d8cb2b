// What the editor uses of CodeMirror.
export {EditorState} from '@codemirror/state';
export {EditorView, drawSelection, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers, placeholder} from '@codemirror/view';
export {defaultKeymap, history, historyKeymap} from '@codemirror/commands';
export {bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentOnInput, StreamLanguage, syntaxHighlighting} from '@codemirror/language';
export {json, jsonParseLinter} from '@codemirror/lang-json';
export {linter, lintKeymap} from '@codemirror/lint';
export {tags} from '@lezer/highlight';
