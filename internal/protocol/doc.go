// Package protocol holds the messages that frontends, workers and queues
// exchange: [PreprocessedRequest] and [EngineOutput] on the request plane,
// [RemotePrefillRequest] on the prefill queue, and the msgpack codec they use.
//
// Field names follow Dynamo's wire objects. Values are plain data; nothing here
// owns anything. It is the one home of msgpack.
package protocol
