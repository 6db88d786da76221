package schematest

// Realistic are schemas as applications send them.
func Realistic() map[string]string {
	return map[string]string{
		"person": `{"title":"Person","type":"object","properties":{"name":{"type":"string","description":"full name"},
			"age":{"type":"integer","minimum":0,"maximum":150},"email":{"type":"string","format":"email"},
			"tags":{"type":"array","items":{"type":"string","maxLength":8},"maxItems":4}},"required":["name","age"],"additionalProperties":false}`,
		"strict steps": `{"type":"object","properties":{"steps":{"type":"array","items":{"type":"object","properties":{"explanation":{"type":"string"},
			"output":{"type":"string"}},"required":["explanation","output"],"additionalProperties":false}},"final_answer":{"type":"string"}},
			"required":["steps","final_answer"],"additionalProperties":false}`,
		"user interface": `{"type":"object","properties":{"type":{"type":"string","enum":["div","button","header"]},"label":{"type":"string"},
			"children":{"type":"array","items":{"$ref":"#"}},"attributes":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},
			"value":{"type":"string"}},"additionalProperties":false,"required":["name","value"]}}},
			"required":["type","label","children","attributes"],"additionalProperties":false}`,
		"linked list": `{"type":"object","properties":{"list":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object","properties":{
			"value":{"type":"number"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"additionalProperties":false,"required":["next","value"]}},
			"additionalProperties":false,"required":["list"]}`,
		"tool call": `{"type":"array","minItems":1,"items":{"type":"object","anyOf":[
			{"properties":{"name":{"type":"string","enum":["get_weather"]},"parameters":{"type":"object","properties":{"city":{"type":"string"},
			"unit":{"type":"string","enum":["celsius","fahrenheit"]}},"required":["city"]}},"required":["name","parameters"]},
			{"properties":{"name":{"const":"stop"},"parameters":{"type":"object","properties":{}}},"required":["name","parameters"]}]}}`,
		"shapes": `{"oneOf":[{"type":"object","properties":{"kind":{"const":"circle"},"radius":{"type":"number","exclusiveMinimum":0}},"required":["kind","radius"]},
			{"type":"object","properties":{"kind":{"const":"box"},"size":{"prefixItems":[{"type":"integer"},{"type":"integer"}],"minItems":2,"items":false}},
			"required":["kind","size"]},{"type":"string","pattern":"^none|null$"}]}`,
		"order": `{"type":"object","properties":{"id":{"type":"string","format":"uuid"},"created":{"type":"string","format":"date-time"},
			"total":{"type":"number","minimum":0,"multipleOf":0.01},"currency":{"enum":["EUR","USD"]},"lines":{"type":"array","minItems":1,"maxItems":3,
			"items":{"$ref":"#/definitions/line"}},"note":{"type":["string","null"],"maxLength":20}},"required":["id","total","lines"],
			"definitions":{"line":{"type":"object","properties":{"sku":{"type":"string","pattern":"^[A-Z]{2}-[0-9]{3,5}$"},"count":{"type":"integer","minimum":1}},
			"required":["sku","count"],"additionalProperties":false}}}`,
		"network": `{"type":"object","properties":{"host":{"type":"string","format":"hostname"},"v4":{"type":"string","format":"ipv4"},
			"v6":{"type":"string","format":"ipv6"},"url":{"type":"string","format":"uri"},"every":{"type":"string","format":"duration"},
			"at":{"type":"string","format":"time"},"port":{"type":"integer","exclusiveMinimum":0,"maximum":65535}},
			"required":["host","v4","v6","url","every","at","port"]}`,
		"inherited": `{"$defs":{"base":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}},
			"allOf":[{"$ref":"#/$defs/base"}],"properties":{"name":{"type":"string"}},"required":["name"]}`,
		"dictionary": `{"type":"object","additionalProperties":{"type":"array","items":{"type":"number","minimum":-1,"maximum":1}},
			"properties":{"version":{"const":"1.0"}},"required":["version"]}`,
		"long text": `{"type":"object","properties":{"body":{"type":"string","minLength":300,"maxLength":1000}},"required":["body"]}`,
		"anything":  `{"type":"object"}`,
	}
}
