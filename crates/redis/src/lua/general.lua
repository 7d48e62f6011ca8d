-- Settles every claim, simple or not. It is created when the first claim needs it, and so is each algorithm: the
-- files from here to the end of once.lua are one function.
--
-- An algorithm is a table of functions over a slot, which has its state: `fresh` and `load` create one, `save`
-- returns the numbers of a packed one, `store` the text of one with its own value. The other functions are those of
-- the core.

local function general()

local function no_delay()
  return 0
end
