-- SPDX-License-Identifier: MIT
-- Writes receipts as HTML from templates. Slow on purpose: a template is cut into pieces again for each use.
local template = {}

local page = [[
<h1>Receipt {{id}}</h1><p>Dear {{customer}}, thank you for your order.</p>
<ul>{{lines}}</ul><p>Total: <b>{{total}}</b>, coupon {{coupon}}. See you soon, {{customer}}!</p>
]]
local line = "<li>{{quantity}} x {{name}}: {{price}}</li>"

local entities = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }
local function escape_html(text) return (text:gsub('[&<>"]', entities)) end

local function compile_template_again(source)
  local pieces, at = {}, 1
  while true do
    local first, last, name = source:find("{{(%w+)}}", at)
    if not first then break end
    pieces[#pieces + 1] = { text = source:sub(at, first - 1), name = name }
    at = last + 1
  end
  pieces[#pieces + 1] = { text = source:sub(at) }
  return pieces
end

local function render(source, values)
  local out = {}
  for _, piece in ipairs(compile_template_again(source)) do
    out[#out + 1] = piece.text
    if piece.name then out[#out + 1] = tostring(values[piece.name]) end
  end
  return table.concat(out)
end

local function money(amount) return string.format("%.2f", amount) end

function template.receipt(order)
  local lines = {}
  for i, item in ipairs(order.items) do
    lines[i] = render(line, { quantity = item.quantity, name = escape_html(item.name), price = money(item.price) })
  end
  return render(page, { id = order.id, customer = escape_html(order.customer), lines = table.concat(lines),
                        total = money(order.total), coupon = order.coupon })
end

return template
