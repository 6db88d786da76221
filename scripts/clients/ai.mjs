import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { embed, generateText, Output, streamText, tool } from 'ai'
import { answer, assert, baseURL, check, done, keys, model, place, user } from './lib.mjs'

const provider = createOpenAICompatible({ name: 'dynctl', baseURL, includeUsage: true, supportsStructuredOutputs: true })
const base = { model: provider(model), prompt: user, temperature: 0, maxOutputTokens: 40, maxRetries: 0 }
const one = { providerOptions: { dynctl: { parallel_tool_calls: false } } }
const tools = { weather: tool({ description: 'weather of a city', inputSchema: place }) }

await check('chat', async () => {
  const r = await generateText(base)
  assert.ok(r.text.length > 0 && r.usage.outputTokens > 0)
})
await check('stream', async () => {
  const whole = await generateText(base)
  const r = streamText(base)
  let text = ''
  for await (const delta of r.textStream) text += delta
  assert.equal(text, whole.text)
  assert.equal((await r.usage).outputTokens, whole.usage.outputTokens)
})
await check('forced tool call', async () => {
  const r = await generateText({ ...base, maxOutputTokens: 200, tools, toolChoice: 'required', ...one })
  assert.equal(r.toolCalls[0].toolName, 'weather')
  assert.equal(keys(place.parse(r.toolCalls[0].input)), 'zeta,alpha')
  assert.equal(r.text, '')
  assert.equal(r.finishReason, 'tool-calls')
})
await check('forced tool call, streamed, and its result', async () => {
  const r = streamText({ ...base, maxOutputTokens: 200, tools, toolChoice: { type: 'tool', toolName: 'weather' }, ...one })
  const calls = await r.toolCalls
  place.parse(calls[0].input)
  const { messages } = await r.response
  const result = { role: 'tool', content: [{ type: 'tool-result', toolCallId: calls[0].toolCallId, toolName: 'weather', output: { type: 'text', value: 'sunny' } }] }
  await generateText({ ...base, prompt: undefined, tools, messages: [{ role: 'user', content: user }, ...messages, result] })
})
await check('tools that the model may call', async () => {
  const r = await generateText({ ...base, tools })
  assert.ok(r.toolCalls.length > 0 || r.text.length > 0)
})
await check('response_format', async () => {
  const r = await generateText({ ...base, maxOutputTokens: 600, output: Output.object({ schema: answer }) })
  assert.equal(keys(r.output), 'verdict,count')
})
await check('embeddings, which are not served', async () => {
  await assert.rejects(embed({ model: provider.textEmbeddingModel(model), value: 'x', maxRetries: 0 }), (e) => e.statusCode === 404)
})
await check('wrong model', async () => {
  await assert.rejects(generateText({ ...base, model: provider('nobody') }), (e) => e.statusCode === 404 && /does not exist/.test(e.message))
})
await check('abort', async () => {
  const control = new AbortController()
  const r = streamText({ ...base, maxOutputTokens: 2000, abortSignal: control.signal, providerOptions: { dynctl: { ignore_eos: true } } })
  let parts = 0, aborted = false
  for await (const part of r.fullStream) {
    if (part.type === 'text-delta' && ++parts === 3) control.abort()
    aborted ||= part.type === 'abort'
  }
  assert.ok(aborted && parts < 2000, `${parts} parts, aborted: ${aborted}`)
})
done()
