// Where the page's data come from: the server, or the page itself if it is an exported file.

export class Refused extends Error {
  constructor(why, status) {
    super(why);
    this.status = status;
  }
}

const AGAIN = 1000;

/** Asks the server. While it does not answer, says so and asks again. */
export class LiveSource {
  constructor() {
    this.live = true;
    this.onTrouble = () => {};
  }

  async ask(question, asked = {}, patient = true) {
    for (;;) {
      let response;
      try {
        response = await fetch(`/api/${question}`, {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(asked),
        });
      } catch {
        this.onTrouble("The server does not answer. Start grue watch again on the same port: " +
                       "this page goes on where it is.");
        if (!patient) throw new Refused("the server does not answer", 0);
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
        continue;
      }
      this.onTrouble("");
      if (response.ok) {
        const kind = response.headers.get("Content-Type") ?? "";
        return kind.startsWith("application/json") ? response.json() : response.text();
      }
      let why = `the server answered ${response.status}`;
      try {
        why = (await response.json()).error;
      } catch {
        // The status must do.
      }
      throw new Refused(why, response.status);
    }
  }
}

/** Answers from what is stored in the page. */
export class StoredSource {
  constructor(stored) {
    this.live = false;
    this.stored = stored;
  }

  async ask(question) {
    const { about, session, moments } = this.stored;
    if (question === "about") return { subjects: [{ number: 0, ...about }] };
    if (question === "begin") return { ...session, moments };
    throw new Refused("this file holds one episode; grue watch does more", 400);
  }
}

export function findSource() {
  const stored = document.getElementById("stored");
  return stored ? new StoredSource(JSON.parse(stored.textContent)) : new LiveSource();
}
