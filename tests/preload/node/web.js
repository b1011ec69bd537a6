// An HTTP service, or its client: node web.js serve PORT | node web.js fetch PORT.
// The service answers with the bytes it was sent, turned around; the client keeps connections open and checks every answer.
const http = require('http');
const crypto = require('crypto');

const [, , role, port] = process.argv;

function serve() {
  const server = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => response.end(Buffer.concat(parts).reverse()));
  });
  server.keepAliveTimeout = 60000;
  server.listen(Number(port), '127.0.0.1');
  process.on('SIGTERM', () => process.exit(0));
}

function post(agent, body) {
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, method: 'POST', agent };
    const request = http.request(options, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('end', () => resolve(Buffer.concat(parts)));
    });
    request.on('error', reject);
    request.end(body);
  });
}

async function fetchAll() {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
  const hash = crypto.createHash('sha256');
  for (let turn = 0; turn < 30; turn++) {
    const bodies = [1, 2, 3, 4].map((k) => Buffer.alloc((turn * k * 997) % 200000, `${turn}-${k};`));
    const answers = await Promise.all(bodies.map((body) => post(agent, body)));
    answers.forEach((answer, k) => {
      if (!answer.equals(Buffer.from(bodies[k]).reverse())) throw new Error(`answer ${turn} ${k}`);
      hash.update(answer);
    });
  }
  agent.destroy();
  console.log(hash.digest('hex'));
}

if (role === 'serve') serve(); else fetchAll().catch((error) => { console.error(error); process.exit(1); });
