// SPDX-License-Identifier: MIT
// A host in C++ with Lua inside of it: an engine object, functions of a namespace, exceptions on the way.
#include <cstdio>
#include <lua.hpp>
#include <memory>
#include <stdexcept>
#include <string>

namespace shop {
int price(lua_State *L) {
  lua_pushnumber(L, luaL_checknumber(L, 1) * 1.19);
  return 1;
}
// calls back: from C++ into Lua within Lua
int each(lua_State *L) {
  for (int i = 1; i <= 20; i++) {
    lua_pushvalue(L, 1);
    lua_pushinteger(L, i);
    lua_call(L, 1, 0);
  }
  return 0;
}
}  // namespace shop

class Engine {
 public:
  Engine() : state_(luaL_newstate(), lua_close) {
    static const luaL_Reg functions[] = {{"price", shop::price}, {"each", shop::each}, {nullptr, nullptr}};
    luaL_openlibs(state_.get());
    luaL_newlib(state_.get(), functions);
    lua_setglobal(state_.get(), "shop");
  }
  void run(const std::string &text) {
    if (luaL_loadbuffer(state_.get(), text.data(), text.size(), text.c_str()) != LUA_OK ||
        lua_pcall(state_.get(), 0, 0, 0) != LUA_OK)
      throw std::runtime_error(lua_tostring(state_.get(), -1));
  }

 private:
  std::unique_ptr<lua_State, void (*)(lua_State *)> state_;
};

int main() try {
  Engine engine;
  std::puts("ready");
  std::fflush(stdout);
  engine.run(R"(
local function total(n)
  local x = 0
  for i = 1, n do x = x + shop.price(i) end
  return x
end
function checkout(i)
  local x = total(i * 100)
end
while true do shop.each(checkout) end
)");
} catch (const std::exception &e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
