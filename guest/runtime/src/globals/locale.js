// Formats dates and numbers without Intl: always as en-US, whatever locale is requested, and dates in UTC. Options that are not supported
// are ignored and do not throw. If another time zone is requested, the result ends with "UTC".
(_web, { kindOf }) => {
  const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
  const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
  const DATE_STYLES = {
    full: { weekday: "long", year: "numeric", month: "long", day: "numeric" },
    long: { year: "numeric", month: "long", day: "numeric" },
    medium: { year: "numeric", month: "short", day: "numeric" },
    short: { year: "2-digit", month: "numeric", day: "numeric" },
  };
  const CLOCK = { hour: "numeric", minute: "2-digit", second: "2-digit" };
  const TIME_STYLES = {
    full: { ...CLOCK, timeZoneName: "short" },
    long: { ...CLOCK, timeZoneName: "short" },
    medium: CLOCK,
    short: { hour: "numeric", minute: "2-digit" },
  };
  const DATE_KEYS = ["weekday", "year", "month", "day"];
  const TIME_KEYS = ["hour", "minute", "second", "fractionalSecondDigits"];
  const UTC = /^(?:UTC|GMT|Etc\/(?:UTC|GMT)|Z|[+-]00:?00)$/i;

  const two = (value) => String(value).padStart(2, "0");
  const named = (list, index, style) => (style === "long" ? list[index] : style === "narrow" ? list[index][0] : list[index].slice(0, 3));

  function dateText(date, options) {
    const { weekday, year, month, day } = options;
    const inWords = ["long", "short", "narrow"].includes(month);
    const texts = {
      weekday: weekday && named(DAYS, date.getUTCDay(), weekday),
      year: year && (year === "2-digit" ? two(Math.abs(date.getUTCFullYear()) % 100) : String(date.getUTCFullYear())),
      month:
        month &&
        (inWords
          ? named(MONTHS, date.getUTCMonth(), month)
          : month === "2-digit"
            ? two(date.getUTCMonth() + 1)
            : String(date.getUTCMonth() + 1)),
      day: day && (day === "2-digit" ? two(date.getUTCDate()) : String(date.getUTCDate())),
    };
    if (!inWords) {
      const numbers = [texts.month, texts.day, texts.year].filter(Boolean).join("/");
      return [texts.weekday, numbers].filter(Boolean).join(", ");
    }
    const monthDay = [texts.month, texts.day].filter(Boolean).join(" ");
    const dated = texts.year ? `${monthDay}${texts.day ? "," : ""} ${texts.year}` : monthDay;
    return [texts.weekday, dated].filter(Boolean).join(", ");
  }

  function timeText(date, options) {
    const { hour, minute, second, fractionalSecondDigits: digits } = options;
    const noTwelve = options.hour12 === false || (options.hour12 === undefined && /^h2[34]$/.test(options.hourCycle ?? ""));
    const hours = noTwelve ? date.getUTCHours() : date.getUTCHours() % 12 || 12;
    const texts = [];
    if (hour) texts.push(hour === "2-digit" || noTwelve ? two(hours) : String(hours));
    if (minute) texts.push(hour || second ? two(date.getUTCMinutes()) : String(date.getUTCMinutes()));
    if (second || digits) {
      const fraction = digits ? `.${String(date.getUTCMilliseconds()).padStart(3, "0").slice(0, digits)}` : "";
      texts.push(`${minute ? two(date.getUTCSeconds()) : date.getUTCSeconds()}${fraction}`);
    }
    const half = hour && !noTwelve ? ` ${date.getUTCHours() < 12 ? "AM" : "PM"}` : "";
    return texts.join(":") + half;
  }

  /** Formats a date. `defaults` apply if the options request no part of a date or of a time. */
  function formatDate(date, given, defaults) {
    if (Number.isNaN(date.getTime())) return "Invalid Date";
    let options = { ...given };
    if (options.dateStyle || options.timeStyle)
      options = { ...options, ...DATE_STYLES[options.dateStyle], ...TIME_STYLES[options.timeStyle] };
    else if (![...DATE_KEYS, ...TIME_KEYS].some((key) => options[key])) options = { ...options, ...defaults };
    const parts = [];
    if (DATE_KEYS.some((key) => options[key])) parts.push(dateText(date, options));
    if (TIME_KEYS.some((key) => options[key])) parts.push(timeText(date, options));
    const asked = options.timeZone;
    const elsewhere = asked !== undefined && !UTC.test(String(asked));
    const zone = options.timeZoneName || (elsewhere && parts.length > 0) ? " UTC" : "";
    return parts.join(", ") + zone;
  }

  const DAY = { year: "numeric", month: "numeric", day: "numeric" };
  const dates = {
    toLocaleString(_locales, options) {
      return formatDate(this, options, { ...DAY, ...CLOCK });
    },
    toLocaleDateString(_locales, options) {
      const asked = DATE_KEYS.some((key) => options?.[key]) || options?.dateStyle || options?.timeStyle;
      return formatDate(this, asked ? options : { ...DAY, ...options }, DAY);
    },
    toLocaleTimeString(_locales, options) {
      const asked = TIME_KEYS.some((key) => options?.[key]) || options?.dateStyle || options?.timeStyle;
      return formatDate(this, asked ? options : { ...CLOCK, ...options }, CLOCK);
    },
  };

  const SIGNS = { USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$" };
  const NO_CENTS = ["JPY", "KRW"];

  /** Returns the smallest and largest number of digits after the decimal point: [minimum, maximum]. */
  function fraction(options) {
    const { style, currency, minimumFractionDigits: least, maximumFractionDigits: most } = options;
    const cents = NO_CENTS.includes(String(currency).toUpperCase()) ? 0 : 2;
    const [low, high] = style === "currency" ? [cents, cents] : style === "percent" ? [0, 0] : [0, 3];
    const within = (value) => Math.min(100, Math.max(0, Math.trunc(Number(value)) || 0));
    const min = least === undefined ? (most === undefined ? low : Math.min(low, within(most))) : within(least);
    return [min, most === undefined ? Math.max(high, min) : Math.max(within(most), min)];
  }

  /** Splits a whole number's digits into groups of three. A regular expression with a lookahead would take quadratic time. */
  function grouped(whole) {
    const sign = whole.startsWith("-") ? "-" : "";
    const digits = whole.slice(sign.length);
    const first = digits.length % 3 || 3;
    const groups = [digits.slice(0, first)];
    for (let at = first; at < digits.length; at += 3) groups.push(digits.slice(at, at + 3));
    return sign + groups.join(",");
  }

  function formatNumber(value, options = {}) {
    const number = options.style === "percent" ? value * 100 : value;
    if (Number.isNaN(number)) return "NaN";
    const [least, most] = fraction(options);
    const size = Math.abs(number);
    // toFixed writes an exponent for numbers of 1e21 and above.
    let [whole, rest = ""] = size === Infinity ? ["∞"] : size < 1e21 ? size.toFixed(most).split(".") : [String(BigInt(size))];
    while (rest.length > least && rest.endsWith("0")) rest = rest.slice(0, -1);
    if (options.useGrouping !== false) whole = grouped(whole);
    whole = rest ? `${whole}.${rest}` : whole;
    const minus = number < 0 && /[1-9∞]/.test(whole) ? "-" : "";
    if (options.style === "percent") return `${minus}${whole}%`;
    if (options.style !== "currency") return minus + whole;
    const code = String(options.currency ?? "").toUpperCase();
    return `${minus}${Object.hasOwn(SIGNS, code) ? SIGNS[code] : `${code} `}${whole}`;
  }

  const numbers = {
    toLocaleString(_locales, options) {
      return formatNumber(Number(this), options ?? {});
    },
  };
  const bigInts = {
    toLocaleString() {
      return grouped(String(this));
    },
  };

  for (const [target, methods, kind] of [
    [Date.prototype, dates, "Date"],
    [Number.prototype, numbers, "Number"],
    [BigInt.prototype, bigInts, "BigInt"],
  ]) {
    for (const [name, method] of Object.entries(methods)) {
      // Like the engine's own methods, these throw if `this` has another type.
      const checked = {
        [name](locales = undefined, options = undefined) {
          if (typeof this === "object" && kindOf(this) !== kind) throw new TypeError(`not a ${kind}`);
          return method.call(this, locales, options);
        },
      }[name];
      Object.defineProperty(target, name, { value: checked, writable: true, configurable: true });
    }
  }
};
