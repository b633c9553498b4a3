"""A bidder without pandora-router: python bidder.py PORT KEY. It claims every prompt up to a price of 0.6."""

import hmac
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = sys.argv[2].encode() if __name__ == "__main__" else b""
seen = set()


class Handler(BaseHTTPRequestHandler):
    """Answers POST /offers and POST /answers."""

    def do_POST(self):
        """Check the signature, reply, sign the reply."""
        body = self.rfile.read(int(self.headers["content-length"]))
        at, nonce = self.headers["x-pandora-time"] or "", self.headers["x-pandora-nonce"] or ""
        sent = b"\n".join([self.path.encode(), at.encode(), nonce.encode(), body])
        signed = hmac.digest(KEY, sent, "sha256").hex() == self.headers["x-pandora-signature"]
        reply = {"answer": "42"} if self.path == "/answers" else {"say": "bid", "limit": 0.6}
        said = json.dumps(reply).encode()
        self.send_response(200 if signed and nonce not in seen else 401)
        seen.add(nonce)
        self.send_header(
            "x-pandora-signature", hmac.digest(KEY, nonce.encode() + b"\n" + said, "sha256").hex()
        )
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
