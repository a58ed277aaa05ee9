"""examples/chat.py: a chat with history. Answers are printed as they come; Ctrl-C stops one, as a stop button would.

    pip install ./bindings/python && python3 examples/chat.py model.gguf

A second argument names a built-in template (chatml, ...), for files without one.
"""
import sys

import duet


def answer(chat: duet.Chat, question: str) -> None:
    try:
        for piece in chat.ask(question):
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        pass  # what came of the answer is in the conversation
    print()


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} MODEL [TEMPLATE]")
    try:
        with duet.Model(sys.argv[1]) as model, model.chat(template_name=sys.argv[2] if sys.argv[2:] else None) as chat:
            while True:
                answer(chat, input("> "))
    except (EOFError, KeyboardInterrupt):
        pass
    except duet.DuetError as error:
        sys.exit(f"chat: {error}")


if __name__ == "__main__":
    main()
