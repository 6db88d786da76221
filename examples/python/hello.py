"""An endpoint: dynctl call dyn://dynamo.backend.hello '{"name":"world"}'"""

from dynamod import serve


def answer(request):
    for word in ("hello", request["name"]):
        yield {"word": word}


serve(answer, endpoint="dyn://dynamo.backend.hello")
