import OpenAI from 'openai'
import { zodResponseFormat, zodFunction } from 'openai/helpers/zod'
import { answer, assert, baseURL, check, done, keys, model, place, user } from './lib.mjs'

const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 })
const messages = [{ role: 'user', content: user }]
const base = { model, messages, temperature: 0, max_tokens: 40 }
const tools = [zodFunction({ name: 'weather', parameters: place })]

await check('models', async () => {
  const list = []
  for await (const m of client.models.list()) list.push(m.id)
  assert.ok(list.includes(model), list)
})
await check('chat', async () => {
  const r = await client.chat.completions.create(base)
  assert.ok(r.choices[0].message.content.length > 0)
  assert.ok(['stop', 'length'].includes(r.choices[0].finish_reason))
  assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)
})
await check('stream', async () => {
  const whole = await client.chat.completions.create(base)
  const stream = client.chat.completions.stream({ ...base, stream_options: { include_usage: true } })
  let text = ''
  stream.on('content', (delta) => { text += delta })
  const last = await stream.finalChatCompletion()
  assert.equal(text, whole.choices[0].message.content)
  assert.equal(last.choices[0].message.content, text)
  assert.equal((await stream.totalUsage()).completion_tokens, whole.usage.completion_tokens)
})
await check('completions', async () => {
  const r = await client.completions.create({ model, prompt: 'Once', max_tokens: 5, temperature: 0, echo: true })
  assert.ok(r.choices[0].text.startsWith('Once'))
})
await check('forced tool call', async () => {
  const r = await client.chat.completions.create({ ...base, max_tokens: 200, tools, tool_choice: 'required', parallel_tool_calls: false })
  const call = r.choices[0].message.tool_calls[0]
  assert.equal(call.function.name, 'weather')
  const got = JSON.parse(call.function.arguments)
  place.parse(got)
  assert.equal(keys(got), 'zeta,alpha')
  assert.equal(r.choices[0].message.content, null)
  assert.equal(r.choices[0].finish_reason, 'tool_calls')
  const next = await client.chat.completions.create({
    ...base, tools, messages: [...messages, r.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'sunny' }],
  })
  assert.ok(next.choices.length === 1)
})
await check('forced tool call, streamed', async () => {
  const stream = client.chat.completions.stream({ ...base, max_tokens: 200, tools, parallel_tool_calls: false, tool_choice: { type: 'function', function: { name: 'weather' } } })
  const r = await stream.finalChatCompletion()
  assert.deepEqual(place.parse(r.choices[0].message.tool_calls[0].function.parsed_arguments), r.choices[0].message.tool_calls[0].function.parsed_arguments)
})
await check('tools that the model may call', async () => {
  const r = await client.chat.completions.create({ ...base, tools })
  const m = r.choices[0].message
  assert.ok(m.tool_calls?.length > 0 || typeof m.content === 'string')
})
await check('response_format', async () => {
  const r = await client.chat.completions.parse({ ...base, max_tokens: 600, response_format: zodResponseFormat(answer, 'answer') })
  assert.equal(keys(r.choices[0].message.parsed), 'verdict,count')
})
await check('embeddings, which are not served', async () => {
  await assert.rejects(client.embeddings.create({ model, input: 'x' }), (e) => e instanceof OpenAI.NotFoundError && e.code === 'unknown_url')
})
await check('wrong model', async () => {
  await assert.rejects(client.chat.completions.create({ ...base, model: 'nobody' }),
    (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.param === 'model' && typeof e.requestID === 'string')
})
await check('abort', async () => {
  const control = new AbortController()
  const stream = await client.chat.completions.create({ ...base, max_tokens: 2000, ignore_eos: true, stream: true }, { signal: control.signal })
  let events = 0
  for await (const _ of stream) if (++events === 3) control.abort() // ends the loop
  assert.ok(events >= 3 && events < 2000, `${events} events`)
  await client.chat.completions.create(base)
})
done()
