-- SPDX-License-Identifier: MIT
-- An action, a service and a task.
local function digest(text)
  local h = 5381
  for i = 1, #text do h = (h * 33 + text:byte(i)) % 4294967296 end
  return h
end
local function check(txn)
  txn:set_var("txn.digest", digest(txn.sf:path() .. "secret"))
end
local function page(applet)
  local out = {}
  for i = 1, 60 do out[#out + 1] = string.format("<li>%d</li>", i) end
  local text = table.concat(out)
  applet:set_status(200)
  applet:add_header("content-length", #text)
  applet:start_response()
  applet:send(text)
end
local function refresh()
  while true do
    digest(("x"):rep(1000))
    core.msleep(50)
  end
end
core.register_action("check", { "http-req" }, check)
core.register_service("page", "http", page)
core.register_task(refresh)
