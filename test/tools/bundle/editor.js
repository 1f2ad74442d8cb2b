// What the editor uses of CodeMirror.
export {EditorView, highlightSpecialChars, keymap, lineNumbers, placeholder} from '@codemirror/view';
export {defaultKeymap, history, historyKeymap} from '@codemirror/commands';
export {bracketMatching, foldGutter, foldKeymap, HighlightStyle, StreamLanguage, syntaxHighlighting} from '@codemirror/language';
export {json, jsonParseLinter} from '@codemirror/lang-json';
export {linter, lintGutter, lintKeymap} from '@codemirror/lint';
export {tags} from '@lezer/highlight';
