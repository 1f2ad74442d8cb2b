// Parses an AsyncAPI file and prints the names of the models that Modelina, the
// generator behind `asyncapi generate models`, makes of it, by language.
const fs = require('fs');
const { Parser } = require('@asyncapi/parser');
const modelina = require('@asyncapi/modelina');

const generators = {
  typescript: new modelina.TypeScriptGenerator(),
  python: new modelina.PythonGenerator(),
  java: new modelina.JavaGenerator(),
  golang: new modelina.GoGenerator(),
};

(async () => {
  const { document, diagnostics } = await new Parser().parse(fs.readFileSync(process.argv[2], 'utf8'));
  const errors = diagnostics.filter((d) => d.severity === 0).map((d) => `${d.path.join('.')}: ${d.message}`);
  const models = {};
  for (const [language, generator] of Object.entries(document ? generators : {})) {
    try {
      models[language] = (await generator.generate(document)).map((model) => model.modelName);
    } catch (e) {
      errors.push(`${language}: ${e.message}`);
    }
  }
  console.log(JSON.stringify({ errors, models }));
})();
