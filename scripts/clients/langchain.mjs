import { HumanMessage, ToolMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai'
import { answer, assert, baseURL, check, done, keys, model, place, user } from './lib.mjs'

const options = { model, temperature: 0, maxTokens: 40, apiKey: 'none', maxRetries: 0, configuration: { baseURL } }
const llm = new ChatOpenAI(options)
const long = new ChatOpenAI({ ...options, maxTokens: 600 })
const weather = tool(() => 'sunny', { name: 'weather', description: 'weather of a city', schema: place })

await check('chat', async () => {
  const r = await llm.invoke(user)
  assert.ok(r.content.length > 0 && r.usage_metadata.output_tokens > 0)
})
await check('stream', async () => {
  const whole = await llm.invoke(user)
  let text = ''
  for await (const chunk of await llm.stream(user)) text += chunk.content
  assert.equal(text, whole.content)
})
await check('forced tool call and its result', async () => {
  const r = await long.bindTools([weather], { tool_choice: 'any' }).invoke(user)
  assert.equal(r.tool_calls[0].name, 'weather')
  assert.equal(keys(place.parse(r.tool_calls[0].args)), 'zeta,alpha')
  await long.bindTools([weather]).invoke([new HumanMessage(user), r, new ToolMessage({ content: 'sunny', tool_call_id: r.tool_calls[0].id })])
})
await check('forced tool call, streamed', async () => {
  let all
  for await (const chunk of await long.bindTools([weather], { tool_choice: 'weather' }).stream(user)) all = all ? all.concat(chunk) : chunk
  place.parse(all.tool_calls[0].args)
})
await check('tools that the model may call', async () => {
  const r = await llm.bindTools([weather]).invoke(user)
  assert.ok(r.tool_calls.length > 0 || r.content.length > 0)
})
for (const method of ['jsonSchema', 'functionCalling']) {
  await check(`response_format by ${method}`, async () => {
    assert.equal(keys(await long.withStructuredOutput(answer, { method, name: 'answer' }).invoke(user)), 'verdict,count')
  })
}
await check('embeddings, which are not served', async () => {
  await assert.rejects(new OpenAIEmbeddings({ ...options, maxRetries: 0 }).embedQuery('x'), (e) => e.status === 404)
})
await check('wrong model', async () => {
  await assert.rejects(new ChatOpenAI({ ...options, model: 'nobody' }).invoke(user), (e) => e.status === 404 && /does not exist/.test(e.message))
})
await check('abort', async () => {
  const control = new AbortController()
  const endless = new ChatOpenAI({ ...options, maxTokens: 2000, modelKwargs: { ignore_eos: true } })
  let chunks = 0
  await assert.rejects(async () => {
    for await (const _ of await endless.stream(user, { signal: control.signal })) if (++chunks === 3) control.abort()
  }, /abort/i)
  assert.ok(chunks >= 3 && chunks < 2000, `${chunks} chunks`)
})
done()
