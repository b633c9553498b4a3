// A bidder in JavaScript: node bidder.mjs PORT KEY. It claims short prompts up to 0.7, long ones up to 0.4.
import { createHmac } from "node:crypto";
import { createServer } from "node:http";

const [port, key] = process.argv.slice(2);
const sign = (...parts) => createHmac("sha256", key).update(Buffer.concat(
  parts.flatMap((part, i) => (i ? [Buffer.from("\n"), Buffer.from(part)] : [Buffer.from(part)])))).digest("hex");
const seen = new Set();

createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts);
  const at = request.headers["x-pandora-time"] ?? "", nonce = request.headers["x-pandora-nonce"] ?? "";
  const trusted = sign(request.url, at, nonce, body) === request.headers["x-pandora-signature"] && !seen.has(nonce);
  seen.add(nonce);
  let reply = { answer: "42" };
  if (trusted && request.url === "/offers") {
    const offer = JSON.parse(body);
    reply = { say: "bid", limit: offer.prompt.length < 100 ? 0.7 : 0.4 };
  }
  const said = JSON.stringify(reply);
  response.writeHead(trusted ? 200 : 401, { "x-pandora-signature": sign(nonce, said) }).end(said);
}).listen(Number(port), "127.0.0.1");
