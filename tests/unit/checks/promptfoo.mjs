// Reads [{type, value, threshold, output}] from stdin, and prints the verdicts of promptfoo's own assertions.
import promptfoo from "promptfoo";
import { readFileSync } from "node:fs";

const verdicts = [];
for (const { output, ...assertion } of JSON.parse(readFileSync(0, "utf8"))) {
  const { pass } = await promptfoo.assertions.runAssertion({
    assertion,
    test: {},
    providerResponse: { output },
  });
  verdicts.push(pass);
}
process.stdout.write(`\n${JSON.stringify(verdicts)}\n`, () => process.exit(0));
