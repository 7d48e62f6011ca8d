// What the content security policy of the server allows: files of this listener, and nothing inline.
export default {
  build: {
    target: "es2022",
    // The folder has a file that git keeps; what was built before is removed by `npm run build`.
    emptyOutDir: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
};
