"""A model with an engine in Python: dynctl chat --model parrot"""

from dynamod import serve


def answer(request):
    # Text becomes tokens in dynamod. An engine that has tokens yields {"token_ids": [...]}.
    said = request["text"].split("<|im_start|>user\n")[-1].split("<|im_end|>")[0]
    for word in said.split():
        yield {"text": word + " "}


serve(answer, model={"name": "parrot", "context_length": 2048})
