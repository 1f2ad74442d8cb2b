// The style of the console's pages. MODULES is the directory of npm's packages.
import {createRequire} from 'node:module';

const load = createRequire(process.env.MODULES + '/');

export default [
  {ignores: ['**/vendor/**']},
  {
    files: ['**/*.js'],
    plugins: {style: load('@stylistic/eslint-plugin')},
    linterOptions: {reportUnusedDisableDirectives: 'error'},
    rules: {
      'no-unused-vars': ['error', {ignoreRestSiblings: true}],
      'style/max-len': ['error', {code: 120, ignoreUrls: false}],
      'style/max-statements-per-line': ['error', {max: 1}],
      'style/no-trailing-spaces': 'error',
    },
  },
];
