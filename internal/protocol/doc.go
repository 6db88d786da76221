// Package protocol holds the messages that frontends, workers and queues exchange, and
// their msgpack codec. [PreprocessedRequest] and [EngineOutput] travel on the request
// plane, [RemotePrefillRequest] on the prefill queue.
//
// Field names follow Dynamo's wire objects. Messages are plain values and own nothing. No
// other package encodes or decodes msgpack.
package protocol
