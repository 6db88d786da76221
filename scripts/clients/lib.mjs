// What all clients are asked: a tool, a schema, and how results are checked.
import assert from 'node:assert/strict'
import { z } from 'zod'

export const baseURL = process.env.DYNCTL_URL + '/v1'
export const model = process.env.DYNCTL_MODEL
export const user = 'What is the weather in Paris?'
export const place = z.object({ zeta: z.enum(['Paris', 'Rome']).describe('city'), alpha: z.number().int().min(0).max(9) })
export const answer = z.object({ verdict: z.enum(['yes', 'no']), count: z.number().int().min(1).max(3) })
export const keys = (o) => Object.keys(o).join()
export { assert, z }

let failed = 0

// check runs one part of a client; a part that fails does not hinder the others.
export async function check(name, run) {
  let timer
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error('took longer than 20 s')), 20_000) })
  try {
    await Promise.race([run(), late])
    console.log(`   ${name}: ok`)
  } catch (e) {
    failed++
    console.log(`   ${name}: FAILED: ${e.stack}`)
  } finally {
    clearTimeout(timer)
  }
}

export function done() { process.exit(failed ? 1 : 0) }
