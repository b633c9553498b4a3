// The AI SDK (npm: ai, @ai-sdk/openai) with a tool, whole and streamed, over both of its wires.
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(path.join(process.env.AGENTS, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { generateText, streamText, tool, jsonSchema, stepCountIs } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const openai = createOpenAI({ baseURL: `${process.env.GATEWAY}/v1`, apiKey: "none" });
const schema = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };

for (const model of [openai.chat("on_messages"), openai.responses("on_chat")]) {
  for (const streamed of [false, true]) {
    const told = [];
    const bash = tool({
      description: "Run a command.",
      inputSchema: jsonSchema(schema),
      execute: async ({ command }) => (told.push(command) === 1 ? "step-one-done" : "step-two-done"),
    });
    // a translated answer is stored nowhere, so the next request must bring it along
    const providerOptions = { openai: { store: false } };
    const prompt = "Find the number.";
    const asked = { model, tools: { bash }, stopWhen: stepCountIs(5), prompt, providerOptions, maxRetries: 0 };
    const text = streamed ? await streamText(asked).text : (await generateText(asked)).text;
    if (!text.includes("The number is 42.") || told.length !== 2) throw new Error(`${text} ${told}`);
  }
}
console.log("ai-sdk: ok");
