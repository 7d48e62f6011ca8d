-- All claims, then all writes.

local answers, answer_count, heads = {}, 0, {}
local function answer(status, said)
  local length = #said
  local head = heads[length * 8 + status]
  if not head then
    head = pack('<I4B', length, status)
    heads[length * 8 + status] = head
  end
  answers[answer_count + 1], answers[answer_count + 2] = head, said
  answer_count = answer_count + 2
end

local SIMPLE = 8 -- a flag
local settle, not_so_simple
for _ = 1, claim_count do
  -- As if it were simple; what follows the claims is long enough for that.
  local flags, which, key, units, after = unpack('<BI2I2I7', body, at)
  if flags == SIMPLE then
    at = after
    local shape = shapes[which]
    local names = shape.names
    if not names then
      names, at = unpack(shape.names_format, body, at)
    end
    local before, status = simple(shape, KEYS[key], units, names)
    if not before then
      if not settle then
        settle, not_so_simple = general()
      end
      before, status = not_so_simple(shape, KEYS[key], units, names), FIRST
    end
    answer(status, before)
  else
    if not settle then
      settle, not_so_simple = general()
    end
    at = at + 3
    answer(settle(flags, which))
  end
end

-- Values live a little longer than they matter. A clock that was set by hand says nothing of Redis's.
local spans = {}
for key, till in pairs(untils) do
  if is_clock_set then
    call('SET', key, values[key])
  elseif not till then
    call('SET', key, values[key], 'KEEPTTL')
  else
    local seconds = max(till - second + GRACE, 1)
    local span = spans[seconds]
    if not span then
      span = tostring(seconds)
      spans[seconds] = span
    end
    call('SET', key, values[key], 'EX', span)
  end
end
return pack('<I8I2', now, min(unsound, 65535)) .. table.concat(answers)
